#include "prism/optim/options.h"

#include <torch/serialize/archive.h>

#include <algorithm>
#include <cmath>

#include "prism/optim/option_types.h"

namespace prism {
namespace {

std::vector<Option> schedule_table(Schedule& schedule) {
  return {option("kind", schedule.kind, ""), option("warmup", schedule.warmup, ""), option("total", schedule.total, ""),
          option("floor", schedule.floor, ""), option("decay", schedule.decay, "")};
}

const Option* find(const std::vector<Option>& table, const std::string& name) {
  for (const auto& line : table) {
    if (line.name == name) return &line;
  }
  return nullptr;
}

constexpr const char* kCapturable =
    "adamw, adam, adagrad, rmsprop, and for prism (covariance instant, or ema with covariance_every 1), muon and "
    "tikhonovmuon (without damping_absolute) with solver gram, one side and normalize none; leave it out";

std::string names_of(const std::vector<Option>& table) {
  std::vector<std::string> names;
  for (const auto& line : table) names.push_back(line.name);
  return c10::Join(", ", names);
}

}  // namespace

bool OptionType<Schedule>::accepts(const Json& json) {
  if (!json.is_object()) return false;
  Schedule scratch;
  const auto table = schedule_table(scratch);
  for (const auto& item : json.items()) {
    if (find(table, item.key()) == nullptr) return false;
  }
  return true;
}

Schedule OptionType<Schedule>::read(const Json& json) {
  Schedule schedule;
  const auto table = schedule_table(schedule);
  for (const auto& [key, value] : json.items()) find(table, key)->set(value);
  return schedule;
}

Json OptionType<Schedule>::write(const Schedule& value) {
  Schedule copy = value;
  Json json = Json::object();
  for (const auto& line : schedule_table(copy)) json[line.name] = line.get();
  return json;
}

void Options::check() const {
  const auto who = name();
  TORCH_CHECK_VALUE(std::isfinite(lr()) && lr() >= 0, who, ": lr must be 0 or more, got ", lr());
  TORCH_CHECK_VALUE(std::isfinite(weight_decay()) && weight_decay() >= 0, who, ": weight_decay must be 0 or more, got ",
                    weight_decay());
  if (state_dtype() == StateType::BFloat16) {
    const auto list = fields({2, 2});
    TORCH_CHECK_VALUE(std::any_of(list.begin(), list.end(), [](const Field& f) { return f.storage == Storage::State; }),
                      who, ": state_dtype 'bfloat16' is for momenta, of which ", who, " has none; leave it out");
  }
  TORCH_CHECK_VALUE(!capturable() || can_be_captured(), who, ": capturable is for ", kCapturable);
}

std::optional<Spectrum> Options::spectrum(const Tensor& /*G*/, const State& /*state*/) const { return std::nullopt; }

std::vector<Option> Options::table() {
  return {
      option("lr", lr_, "learning rate"),
      option("weight_decay", weight_decay_,
             couples_decay() ? "weight decay λ, added to the gradient as λW"
                             : "weight decay λ, decoupled: W ← W(1 − lr·λ)"),
      option("maximize", maximize_, "climb instead of descend"),
      option("skip_nonfinite", skip_nonfinite_,
             "a step with a non-finite gradient changes nothing and is counted, without waiting for the device"),
      option("state_dtype", state_dtype_, "type of the momenta; auto is float32, float64 for float64 weights"),
      option("master_weights", master_weights_, "keep float32 copies of 16-bit weights"),
      option("capturable", capturable_,
             "keep the learning rate and γ on the GPU, where a CUDA graph of the step reads them at every replay"),
  };
}

Json Options::to_json() const {
  const auto self = copy();
  Json json = Json::object();
  for (const auto& line : self->table()) json[line.name] = line.get();
  return json;
}

void Options::from_json(const Json& values) {
  TORCH_CHECK_VALUE(values.is_object(), name(), ": expected options as a JSON object, got ", values.dump());
  const auto lines = table();
  for (const auto& [key, value] : values.items()) {
    const Option* line = find(lines, key);
    TORCH_CHECK_VALUE(line != nullptr, name(), ": unknown option '", key, "'; the options are ", names_of(lines));
    line->set(value);
  }
  check();
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
