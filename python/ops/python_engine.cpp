#include "python/ops/python_engine.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <utility>

#include "prism/io/spelling.h"
#include "prism/optim/c10d_exchange.h"
#include "prism/optim/registry.h"
#include "prism/optim/routing.h"

namespace prism {
namespace {

bool is_on_gpu(const c10::IValue& value) { return value.isTensor() && value.toTensor().is_cuda(); }

using NoLayouts = std::vector<LayoutPtr>;

// A number that Python holds under the name of an option.
double number_of(const std::string& option, const c10::IValue& value) {
  if (value.isScalar()) return value.toScalar().toDouble();
  if (value.isTensor()) return value.toTensor().item<double>();
  std::ostringstream text;
  if (value.isString()) {
    text << std::quoted(value.toStringRef());
  } else {
    text << value;
  }
  TORCH_CHECK_VALUE(false, "option '", option, "': expected number, got ", text.str());
}

}  // namespace

std::vector<int64_t> PythonEngine::set_groups(const Names& optimizers, const std::vector<Tensors>& parameters,
                                              const std::vector<Names>& names,
                                              const std::optional<std::string>& comm_dtype,
                                              const std::string& sharding) {
  const auto plain = checked_names(optimizers, parameters, names);
  TORCH_CHECK_VALUE(!comm_dtype || *comm_dtype == "bfloat16",
                    "prism_optim: comm_dtype must be 'bfloat16' or None, got '", *comm_dtype, "'");
  const auto layouts = layouts_of(sharding, comm_dtype.has_value());
  std::set<const c10::TensorImpl*> held;
  for (const auto& group : parameters) {
    for (const auto& parameter : group) held.insert(parameter.unsafeGetTensorImpl());
  }
  std::vector<int64_t> unused;
  int64_t place = 0;
  each_parameter([&](size_t group, size_t parameter) {
    const Tensor& old = engine_.groups()[group].parameters[parameter];
    if (held.count(old.unsafeGetTensorImpl()) == 0 && engine_.has_initial_state(group, parameter))
      unused.push_back(place);
    ++place;
  });
  std::vector<Given> given;
  std::vector<std::pair<Engine::Group::DeviceNumber, Engine::Group::DeviceNumber>> numbers;
  for (size_t g = 0; g < optimizers.size(); ++g) {
    given.push_back({make_options(optimizers[g]), names[g], false});
    numbers.emplace_back();
    for (size_t old = 0; old < given_.size(); ++old) {  // a graph may read the numbers of a group that changed places
      if (holds(old, optimizers[g], parameters[g])) numbers[g] = {engine_.group(old).lr, engine_.group(old).gamma};
    }
  }
  engine_.resize(given.size());
  for (size_t g = 0; g < given.size(); ++g) {
    engine_.set_group(g, *given[g].options, parameters[g], plain[g], layouts.empty() ? NoLayouts() : layouts[g]);
    engine_.group(g).names = plain[g];
    std::tie(engine_.group(g).lr, engine_.group(g).gamma) = numbers[g];
  }
  given_ = std::move(given);
  is_shown_ = false;
  return unused;
}

std::vector<Names> PythonEngine::names() const {
  std::vector<Names> all;
  for (const auto& group : engine_.groups()) all.push_back(group.names);
  return all;
}

Fields PythonEngine::place_numbers(int64_t index, const Values& numbers) {
  at::NoGradGuard no_grad;
  Fields placed;
  Engine::Group& group = engine_.group(index);
  if (group.parameters.empty() || !group.parameters.front().is_cuda()) return placed;
  const at::Device device = group.parameters.front().device();
  for (const auto& entry : numbers) {
    Tensor& own = (entry.key() == "lr" ? group.lr : group.gamma).own;
    const bool there = own.defined() && own.device() == device;
    if (is_on_gpu(entry.value()) && !(there && given_.at(index).restored)) continue;
    if (!there) own = at::empty({}, at::TensorOptions().dtype(at::kDouble).device(device));
    if (entry.value().isTensor()) {
      own.copy_(entry.value().toTensor().reshape({}));
    } else {
      own.fill_(number_of(entry.key(), entry.value()));
    }
    placed.insert(entry.key(), own);
  }
  return placed;
}

void PythonEngine::set_numbers(int64_t index, const std::vector<c10::IValue>& numbers, bool capturable) {
  Given& given = given_.at(index);
  Options& options = *given.options;
  Engine::Group& group = engine_.group(index);
  const bool captured = capturable && !group.parameters.empty() && group.parameters.front().is_cuda();
  size_t next = 0;
  for (const auto& line : options.table()) {
    if (line.type != "number") continue;
    const c10::IValue& value = numbers.at(next++);
    const bool is_lr = line.name == "lr", is_gamma = line.name == "gamma";
    const bool on_gpu = (is_lr || (is_gamma && captured)) && is_on_gpu(value);
    TORCH_CHECK_VALUE(!on_gpu || value.toTensor().numel() == 1, options.name(), ": ", line.name,
                      " must be one number, got shape ", value.toTensor().sizes());
    if (is_lr || is_gamma)
      (is_lr ? group.lr : group.gamma).given = on_gpu ? number(value.toTensor().detach()) : Tensor();
    if (on_gpu) continue;
    const double number = number_of(line.name, value);
    if (line.numbers(options).front() != number) line.set(options, number);
  }
  given.restored = false;
}

void PythonEngine::set_options(int64_t index, const std::string& values) {
  auto changed = given_.at(index).options->copy();
  changed->from_json(Json::parse(values));
  replace(index, std::move(changed));
}

bool PythonEngine::make_state() {
  if (!engine_.make_state().empty()) is_shown_ = false;
  if (skipped_before_.defined() && engine_.skipped().defined())
    Tensor(engine_.skipped()).copy_(std::exchange(skipped_before_, Tensor()));
  return !is_shown_;
}

std::vector<Fields> PythonEngine::state() const {
  std::vector<Fields> all;
  each_parameter([&](size_t group, size_t parameter) {
    Fields& fields = all.emplace_back();
    for (const auto& [name, view] : engine_.state_of(group, parameter)) fields.insert(name, view);
  });
  return all;
}

void PythonEngine::take_state(const std::vector<Fields>& held) {
  at::NoGradGuard no_grad;
  is_shown_ = true;
  if (std::exchange(is_restored_, false)) return;
  auto next = held.begin();
  each_parameter([&](size_t group, size_t parameter) {
    const Fields& values = *next++;
    const auto views = engine_.state_of(group, parameter);
    if (values.empty() && !views.empty()) engine_.reset_state(group, parameter);
    for (const auto& [key, view] : views) {
      if (!values.contains(key) || values.at(key).is_set_to(view)) continue;
      const Tensor& held_value = values.at(key);
      const Tensor value =
          held_value.sizes() == view.sizes() ? held_value : engine_.part_of_state(group, parameter, key, held_value);
      TORCH_CHECK_VALUE(value.sizes() == view.sizes(), "state '", key, "' of '",
                        engine_.groups()[group].names[parameter], "' must be ", view.scalar_type(), " of shape ",
                        view.sizes(), ", got ", value.scalar_type(), " of shape ", value.sizes());
      view.copy_(value);
    }
  });
}

void PythonEngine::step(const OptionalTensor& found_inf, const OptionalTensor& grad_scale) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  last_scale_ = number(grad_scale);
  engine_.step({.found_inf = number(found_inf), .grad_scale = last_scale_});
}

std::string PythonEngine::cut_fields() const {
  Json all = Json::array();
  each_parameter([&](size_t group, size_t parameter) {
    Json& fields = all.emplace_back(Json::object());
    for (const auto& field : engine_.cut_fields(group, parameter)) fields[field.name] = {field.shape, field.apart};
  });
  return all.dump();
}

Tensor PythonEngine::whole_state(int64_t place, const std::string& field) const {
  Tensor whole;
  int64_t next = 0;
  each_parameter([&](size_t group, size_t parameter) {
    if (next++ == place) whole = engine_.whole_state(group, parameter, field);
  });
  return whole;
}

std::vector<int64_t> PythonEngine::places(const std::string& groups) const {
  std::map<std::string, int64_t> ours;
  each_parameter([&](size_t group, size_t parameter) {
    const auto place = static_cast<int64_t>(ours.size());
    ours[engine_.groups()[group].names[parameter]] = place;
  });
  std::vector<int64_t> places;
  const Json header = saved_header(Json::parse(groups));
  for (const auto& group : header["groups"]) {
    for (const auto& name : group["parameters"]) {
      const auto found = ours.find(name.get<std::string>());
      places.push_back(found != ours.end() ? found->second : -1);
    }
  }
  return places;
}

std::string PythonEngine::plan() const {
  const auto lines = engine_.plan();
  std::vector<Names> rows = {{"matrix", "shape", "Gram side", "path", "owner", "cost", "bytes sent a step"}};
  std::map<const Exchange*, std::vector<std::pair<double, int64_t>>> ranks;
  const auto number = [](double value) {
    std::ostringstream text;
    text << std::setprecision(3) << value;
    return text.str();
  };
  double alone = 0;
  for (const auto& line : lines) {
    const bool is_shared = line.layout != nullptr;
    const auto* path = !is_shared ? "whole here" : line.layout->is_replicated() ? "from its owner" : "to its owner";
    std::vector<int64_t> sides;
    for (const auto& gram : line.sides) sides.push_back(gram.side);
    rows.push_back({line.name, c10::Join(" × ", line.shape), c10::Join(", ", sides), path,
                    is_shared ? std::to_string(line.owner) : "each", number(line.cost),
                    std::to_string(c10::sum_integers(line.bytes))});
    if (!is_shared) {
      alone += line.cost;
      continue;
    }
    auto& loads = ranks[line.layout->exchange.get()];
    loads.resize(line.bytes.size());
    loads[line.owner].first += line.cost;
    for (size_t r = 0; r < loads.size(); ++r) loads[r].second += line.bytes[r];
  }
  std::ostringstream text;
  text << io::aligned(rows);
  if (ranks.empty()) text << "Every process shapes all its matrices: cost " << number(alone) << ".\n";
  for (const auto& exchange : exchanges_) {
    const auto found = ranks.find(exchange.second.get());
    if (found == ranks.end()) continue;
    for (size_t r = 0; r < found->second.size(); ++r) {
      const auto& [load, bytes] = found->second[r];
      text << "rank " << r << (static_cast<int64_t>(r) == exchange.second->rank() ? " (this one)" : "") << ": cost "
           << number(load) << ", sends " << bytes << " bytes a step\n";
    }
  }
  return text.str();
}

std::shared_ptr<Exchange> PythonEngine::exchange(const std::string& group) {
  auto& known = exchanges_[group];
  if (!known) known = std::make_shared<C10dExchange<c10d::ProcessGroup>>(c10d::resolve_process_group(group));
  return known;
}

std::vector<std::vector<LayoutPtr>> PythonEngine::layouts_of(const std::string& sharding, bool in_bfloat16) {
  if (sharding.empty()) {
    engine_.set_guard(nullptr);
    return {};
  }
  const Json given = Json::parse(sharding);
  engine_.set_guard(exchange(given["everyone"].get<std::string>()));
  std::vector<LayoutPtr> layouts;
  for (const auto& line : given["layouts"]) {
    Layout layout{line["shape"].get<std::vector<int64_t>>(), {}, exchange(line["group"].get<std::string>())};
    for (const auto& box : line["boxes"])
      layout.boxes.push_back({box[0].get<std::vector<int64_t>>(), box[1].get<std::vector<int64_t>>()});
    TORCH_INTERNAL_ASSERT(static_cast<int64_t>(layout.boxes.size()) == layout.exchange->size());
    if (in_bfloat16) layout.exchange->send_updates_as(at::kBFloat16);
    layouts.push_back(std::make_shared<const Layout>(std::move(layout)));
  }
  std::vector<std::vector<LayoutPtr>> all;
  for (const auto& group : given["of"]) {
    auto& own = all.emplace_back();
    for (const auto& number : group) own.push_back(number.get<int64_t>() < 0 ? nullptr : layouts.at(number));
  }
  return all;
}

Tensor PythonEngine::skipped() const {
  if (skipped_before_.defined()) return skipped_before_;
  return engine_.skipped().defined() ? engine_.skipped() : at::zeros({}, at::kLong);
}

c10::intrusive_ptr<PythonEngine> PythonEngine::after(const Tensor& skipped) {
  auto engine = c10::make_intrusive<PythonEngine>();
  engine->skipped_before_ = skipped;
  return engine;
}

void PythonEngine::add_fields(std::vector<Names>& fields) const {
  auto own = fields.begin();
  each_parameter([&](size_t group, size_t parameter) {
    for (const auto& [name, _] : engine_.state_of(group, parameter)) own->push_back(name);
    for (const auto& field : engine_.cut_fields(group, parameter)) own->push_back(field.name);
    ++own;
  });
}

std::tuple<std::vector<int64_t>, std::vector<int64_t>, std::vector<Names>, std::string> PythonEngine::restore(
    const std::string& groups, const std::vector<Values>& states, const std::vector<OptionalTensor>& skipped,
    bool mixed) {
  const auto all_places = places(groups);
  std::vector<Names> ours;
  each_parameter([&](size_t, size_t) { ours.emplace_back(); });
  add_fields(ours);
  Snapshot snapshot{saved_header(Json::parse(groups)), {}};
  auto state = states.begin();
  for (const auto& group : snapshot.header["groups"]) {
    for (const auto& name : group["parameters"]) {
      for (const auto& entry : *state++) {
        const Tensor value = entry.value().isTensor()
                                 ? entry.value().toTensor()
                                 : at::scalar_tensor(entry.value().toScalar().toDouble(), at::kFloat);
        snapshot.tensors.emplace_back("state." + name.get<std::string>() + "." + entry.key(), value);
      }
    }
  }
  if (engine_.skipped().defined()) {
    const auto count = std::find_if(skipped.begin(), skipped.end(), [](const auto& one) { return one.has_value(); });
    snapshot.tensors.emplace_back("skipped", count != skipped.end() ? **count : at::zeros_like(engine_.skipped()));
  }
  auto restored = engine_.restore(snapshot, "load_state_dict");
  std::vector<int64_t> sources;
  std::set<std::string> changes;
  for (size_t g = 0; g < restored.size(); ++g) {
    sources.push_back(static_cast<int64_t>(restored[g].source));
    note_changes(changes, *given_[g].options, *restored[g].options, mixed);
    replace(static_cast<int64_t>(g), std::move(restored[g].options));
    given_[g].restored = true;
  }
  is_shown_ = false;
  is_restored_ = true;
  add_fields(ours);
  std::vector<Names> fields;
  for (const auto place : all_places) fields.push_back(ours.at(place));
  return {sources, all_places, fields, c10::Join(", ", Names(changes.begin(), changes.end()))};
}

std::tuple<Names, Tensors> PythonEngine::spectra() const {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  Names names;
  Tensors values;
  for (const auto& [name, spectrum, weight_norm, update_norm] : engine_.spectra(last_scale_)) {
    names.push_back(name);
    for (const auto& value :
         {spectrum.singular_values, spectrum.snr, spectrum.gain, spectrum.theory, weight_norm, update_norm})
      values.push_back(value);
  }
  return {names, values};
}

bool PythonEngine::holds(size_t index, const std::string& optimizer, const Tensors& parameters) const {
  const auto& ours = engine_.groups()[index].parameters;
  return given_[index].options->name() == optimizer &&
         std::equal(ours.begin(), ours.end(), parameters.begin(), parameters.end(),
                    [](const Tensor& a, const Tensor& b) { return a.is_same(b); });
}

std::vector<Names> PythonEngine::checked_names(const Names& optimizers, const std::vector<Tensors>& parameters,
                                               const std::vector<Names>& names) {
  Names all;
  for (size_t g = 0; g < optimizers.size(); ++g) {
    TORCH_CHECK_VALUE(!optimizers[g].empty(),
                      "a group of param_groups has no 'optimizer'; add it with add_param_group(group)");
    TORCH_CHECK_VALUE(names[g].empty() || names[g].size() == parameters[g].size(), optimizers[g], ": a group has ",
                      parameters[g].size(), " parameters and ", names[g].size(),
                      " names; keep 'param_names' beside 'params', or use add_param_group");
    for (size_t p = 0; p < parameters[g].size(); ++p)
      all.push_back(names[g].empty() ? "parameter." + std::to_string(all.size()) : names[g][p]);
  }
  all = plain_names(std::move(all));
  std::vector<Names> plain;
  auto next = all.begin();
  for (size_t g = 0; g < optimizers.size(); ++g) {
    const auto end = next + static_cast<std::ptrdiff_t>(parameters[g].size());
    plain.emplace_back(next, end);
    for (const auto& parameter : parameters[g]) {
      TORCH_CHECK_TYPE(!parameter.key_set().has(c10::DispatchKey::Python), optimizers[g], ": '", *next++,
                       "' must be a plain tensor or a DTensor, got another subclass of Tensor; keep it plain");
    }
    next = end;
  }
  return plain;
}

void PythonEngine::replace(int64_t index, std::unique_ptr<Options> options) {
  const auto& group = engine_.groups().at(index);
  engine_.set_group(index, *options, group.parameters, group.names, group.layouts);
  given_[index].options = std::move(options);
}

Json PythonEngine::saved_header(const Json& saved) const {
  bool by_name = true;
  for (size_t g = 0; g < given_.size(); ++g)
    by_name &= !given_[g].names.empty() || engine_.groups()[g].parameters.empty();
  for (const auto& group : saved) {
    by_name &= group.contains("param_names");
    for (const auto& number : group["params"]) by_name &= !number.is_string();
  }
  Json groups = Json::array();
  for (const auto& group : saved) {
    TORCH_CHECK_VALUE(group.contains("optimizer") && group["optimizer"].is_string(),
                      "load_state_dict: the state was not saved by an optimizer of prism_optim: its groups name no "
                      "'optimizer'");
    const size_t g = groups.size();
    const size_t count = group["params"].size();
    Json names;
    if (by_name) {
      names = plain_names(group["param_names"].get<Names>());
    } else {
      const auto& ours = engine_.groups();
      TORCH_CHECK_VALUE(saved.size() == ours.size(), "load_state_dict: expected ", ours.size(),
                        " parameter groups, got ", saved.size());
      TORCH_CHECK_VALUE(count == ours[g].names.size(), "load_state_dict: parameter group ", g, " has ",
                        ours[g].names.size(), " parameters here, but ", count, " in the saved state");
      names = ours[g].names;
    }
    Json options = group;
    for (const auto* key : {"optimizer", "params", "param_names"}) options.erase(key);
    groups.push_back({{"optimizer", group["optimizer"]}, {"options", options}, {"parameters", names}});
  }
  return {{"format", 1}, {"groups", groups}};
}

void PythonEngine::note_changes(std::set<std::string>& changes, const Options& before, const Options& after,
                                bool mixed) {
  const auto usual = mixed ? make_mixed_options(before.name()) : make_options(before.name());
  const auto text = [](const Json& value) -> std::string {  // as Python writes it
    if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
    return value.is_string() ? "'" + value.get<std::string>() + "'" : value.dump();
  };
  for (const auto& line : before.table()) {
    if (line.type == "number" || line.type == "pair") continue;  // schedulers change them
    const Json was = line.get(before), is = line.get(after);
    if (was != is && was != line.get(*usual)) changes.insert(line.name + "=" + text(is) + " in place of " + text(was));
  }
}

}  // namespace prism
