#include "prism/optim/options.h"

#include <torch/serialize/archive.h>

#include <algorithm>
#include <cmath>

#include "prism/optim/kernel_rule.h"
#include "prism/optim/spectral.h"

namespace prism {
namespace {

template <class Function>
void each_field(Schedule& schedule, Function&& function) {
  function("kind", schedule.kind);
  function("warmup", schedule.warmup);
  function("total", schedule.total);
  function("floor", schedule.floor);
  function("decay", schedule.decay);
}

constexpr const char* kCapturable =
    "adamw, adam, adagrad, rmsprop, and for prism (covariance instant, or ema with gamma > 0), muon and tikhonovmuon "
    "(without damping_absolute) with solver gram, polynomials of degree 5 or 9 and one side; leave it out";

std::string names_of(const std::vector<Option>& table) {
  std::vector<std::string> names;
  for (const auto& line : table) names.push_back(line.name);
  return c10::Join(", ", names);
}

std::string text_of(const std::vector<double>& numbers) {
  const auto text = c10::Join(", ", numbers);
  return numbers.size() == 1 ? text : "(" + text + ")";
}

}  // namespace

bool OptionType<Schedule>::accepts(const Json& json) {
  if (!json.is_object()) return false;
  size_t known = 0;
  Schedule schedule;
  each_field(schedule, [&](const char* name, auto& /*member*/) { known += json.count(name); });
  return known == json.size();
}

Schedule OptionType<Schedule>::read(const Json& json) {
  Schedule schedule;
  each_field(schedule, [&](const char* name, auto& member) {
    using Type = OptionType<std::decay_t<decltype(member)>>;
    const auto found = json.find(name);
    if (found == json.end()) return;
    TORCH_CHECK_VALUE(Type::accepts(*found), "option '", name, "': expected ", Type::name(), ", got ", found->dump());
    member = Type::read(*found);
  });
  return schedule;
}

Json OptionType<Schedule>::write(const Schedule& value) {
  Schedule copy = value;
  Json json = Json::object();
  each_field(copy, [&](const char* name, auto& member) {
    json[name] = OptionType<std::decay_t<decltype(member)>>::write(member);
  });
  return json;
}

bool Range::holds(double value) const {
  if (words == nullptr) return true;
  return std::isfinite(value) && (open_low ? value > low : value >= low) && (open_high ? value < high : value <= high);
}

const void* Option::place(const Options& options) const { return reinterpret_cast<const char*>(&options) + offset_; }

void Option::set(Options& options, const Json& value) const {
  TORCH_CHECK_VALUE(write_(const_cast<void*>(place(options)), value), "option '", name, "': expected ", type, ", got ",
                    value.dump());
  options.set_.push_back(name);
}

std::vector<GramSide> Options::gram_sides(at::IntArrayRef shape) const {
  return {{std::min(shape[shape.size() - 2], shape.back())}};
}

Operands Options::operands(const Tensor& G, State& /*state*/) const { return {G}; }

Tensor Options::rests(const State& /*state*/) const { return {}; }

std::optional<Momentum> Options::momentum_rule() const { return std::nullopt; }

std::unique_ptr<KernelRule> Options::kernel_rule() const { return nullptr; }

bool Options::can_be_captured() const { return kernel_rule() != nullptr; }

std::optional<Spectrum> Options::spectrum(const Tensor& /*G*/, const State& /*state*/) const { return std::nullopt; }

void Options::check() const {
  for (const auto& line : table_) {
    if (line.range.words == nullptr) continue;
    const auto numbers = line.numbers(*this);
    TORCH_CHECK_VALUE(std::all_of(numbers.begin(), numbers.end(), [&](double x) { return line.range.holds(x); }),
                      name(), ": ", line.name, " must be ", line.range.words, ", got ", text_of(numbers));
  }
  if (state_dtype() == StateType::BFloat16) {
    const auto list = fields({2, 2});
    TORCH_CHECK_VALUE(std::any_of(list.begin(), list.end(), [](const Field& f) { return f.storage == Storage::State; }),
                      name(), ": state_dtype 'bfloat16' is for momenta, but ", name(), " has none; leave it out");
  }
  TORCH_CHECK_VALUE(!capturable() || can_be_captured(), name(), ": capturable is for ", kCapturable);
}

const Option* Options::find(std::string_view option) const {
  for (const auto& line : table_) {
    if (line.name == option) return &line;
  }
  return nullptr;
}

void Options::document_coupled_decay() {
  for (auto& line : table_) {
    if (line.name == "weight_decay") line.doc = "weight decay λ, added to the gradient as λW";
  }
}

bool Options::is_set(std::string_view option) const {
  return std::find(set_.begin(), set_.end(), option) != set_.end();
}

Json Options::to_json() const {
  Json json = Json::object();
  for (const auto& line : table_) json[line.name] = line.get(*this);
  return json;
}

void Options::from_json(const Json& values) {
  set_values(values);
  check();
}

void Options::set_values(const Json& values) {
  TORCH_CHECK_VALUE(values.is_object(), name(), ": expected options as a JSON object, got ", values.dump());
  for (const auto& [key, value] : values.items()) {
    const Option* line = find(key);
    TORCH_CHECK_VALUE(line != nullptr, name(), ": unknown option '", key, "'; the options are ", names_of(table_));
    line->set(*this, value);
  }
}

std::unique_ptr<Options> Options::copy() const {
  return std::unique_ptr<Options>(static_cast<Options*>(clone().release()));
}

void Options::serialize(torch::serialize::InputArchive& archive) {
  c10::IValue text;
  archive.read("options", text);
  from_json(Json::parse(text.toStringRef()));
}

void Options::serialize(torch::serialize::OutputArchive& archive) const { archive.write("options", to_json().dump()); }

}  // namespace prism
