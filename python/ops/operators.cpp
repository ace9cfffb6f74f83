// torch.ops.prism and torch.classes.prism: what prism_optim needs of the library.
//
//   tables()                    every optimizer: {"prism": {"class", "summary", "options": [{"name", "type", "doc",
//                               "default", "mixed_default"}, …]}, …}, where the last is the default inside Mixed
//   default_rules(…), route(…)  which optimizer takes which parameter, and the table to print
//   plain_names(names)          parameter names without what wrappers put into them
//   check_keys(optimizer, keys) refuses keys of a group that read like options it does not have
//   Engine                      groups of parameters with their options and state; its step takes no options and no
//                               tensors but what changed since the last

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <memory>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "prism/io/spelling.h"
#include "prism/optim/engine.h"
#include "prism/optim/registry.h"
#include "prism/optim/routing.h"

namespace prism {
namespace {

using Tensors = std::vector<Tensor>;
using Names = std::vector<std::string>;
using OptionalTensor = std::optional<Tensor>;

std::string tables() {
  Json all = Json::object();
  for (const auto& info : optimizers()) {
    const auto options = make_options(info.name), mixed = make_options(info.name);
    mixed->use_mixed_defaults();
    Json lines = Json::array();
    for (const auto& line : options->table()) {
      lines.push_back({{"name", line.name},
                       {"type", line.type},
                       {"doc", line.doc},
                       {"default", line.get(*options)},
                       {"mixed_default", line.get(*mixed)}});
    }
    all[info.name] = {{"class", info.class_name}, {"summary", info.summary}, {"options", lines}};
  }
  return all.dump();
}

// The class behind prism_optim.Optimizer.
class PythonEngine : public torch::CustomClassHolder {
 public:
  // Makes group `index`, which may be the next one, hold these parameters under an optimizer with its default options.
  // No names, or one for each.
  void set_group(int64_t index, const std::string& optimizer, const Tensors& parameters, const Names& names) {
    TORCH_CHECK_VALUE(names.empty() || names.size() == parameters.size(), optimizer, ": a group has ",
                      parameters.size(), " parameters and ", names.size(),
                      " names; keep 'param_names' beside 'params', or use add_param_group");
    auto made = make_options(optimizer);
    if (static_cast<size_t>(index) >= options_.size()) resize(index + 1);
    engine_.set_group(index, *made, parameters, names);
    Engine::Group& group = engine_.group(index);
    group.lr.given = group.gamma.given = Tensor();
    options_[index] = std::move(made);
    given_[index] = names;
  }

  void resize(int64_t groups) {
    engine_.resize(groups);
    options_.resize(groups);
    given_.resize(groups);
  }

  // Names all parameters: as they were given, without wrappers such as `module.`, or parameter.0, parameter.1, …
  // counted over all groups. Returns the names of each group.
  std::vector<Names> name_parameters() {
    Names all;
    for (size_t g = 0; g < given_.size(); ++g) {
      for (size_t p = 0; p < engine_.groups()[g].parameters.size(); ++p)
        all.push_back(given_[g].empty() ? "parameter." + std::to_string(all.size()) : given_[g][p]);
    }
    all = plain_names(std::move(all));
    std::vector<Names> names;
    auto next = all.begin();
    for (size_t g = 0; g < given_.size(); ++g) {
      const auto end = next + static_cast<std::ptrdiff_t>(engine_.groups()[g].parameters.size());
      engine_.group(g).names = names.emplace_back(next, end);
      next = end;
    }
    return names;
  }

  // All options that are numbers, in the order of the table; learning rate and γ may be on a GPU, and then their places
  // are not read.
  void set_numbers(int64_t index, const std::vector<double>& numbers, const OptionalTensor& lr,
                   const OptionalTensor& gamma) {
    Options& options = *options_.at(index);
    size_t next = 0;
    for (const auto& line : options.table()) {
      if (line.type != "number") continue;
      const double value = numbers.at(next++);
      if ((line.name == "lr" && lr) || (line.name == "gamma" && gamma) || line.numbers(options).front() == value)
        continue;
      line.set(options, value);
    }
    const auto place = [&](Engine::Group::DeviceNumber& number, const OptionalTensor& value, const char* option) {
      TORCH_CHECK_VALUE(!value || value->numel() == 1, options.name(), ": ", option, " must be one number, got shape ",
                        value ? value->sizes() : at::IntArrayRef());
      number.given = value ? value->detach().reshape({}) : Tensor();
    };
    place(engine_.group(index).lr, lr, "lr");
    place(engine_.group(index).gamma, gamma, "gamma");
  }

  // Others that changed, as an object.
  void set_options(int64_t index, const std::string& changes) {
    auto changed = options_.at(index)->copy();
    changed->from_json(Json::parse(changes));
    replace(index, std::move(changed));
  }

  // Returns the groups whose state lies elsewhere than before.
  std::vector<int64_t> make_state() {
    const auto changed = engine_.make_state();
    return {changed.begin(), changed.end()};
  }

  // The parameter, the name and a view of each tensor of a group's state.
  std::tuple<std::vector<int64_t>, Names, Tensors> state(int64_t index) const {
    std::tuple<std::vector<int64_t>, Names, Tensors> result;
    for (size_t p = 0; p < engine_.groups().at(index).parameters.size(); ++p) {
      for (auto& [name, view] : engine_.state_of(index, p)) {
        std::get<0>(result).push_back(static_cast<int64_t>(p));
        std::get<1>(result).push_back(name);
        std::get<2>(result).push_back(view);
      }
    }
    return result;
  }
  void reset_state(int64_t index, int64_t parameter) { engine_.reset_state(index, parameter); }

  // Copies a value that came from elsewhere into a view of the state of a parameter.
  void put_state(int64_t index, int64_t parameter, const std::string& key, const Tensor& view, const Tensor& value) {
    at::NoGradGuard no_grad;
    TORCH_CHECK_VALUE(value.sizes() == view.sizes(), "state '", key, "' of '",
                      engine_.groups().at(index).names.at(parameter), "' must be ", view.scalar_type(), " of shape ",
                      view.sizes(), ", got ", value.scalar_type(), " of shape ", value.sizes());
    view.copy_(value);
  }

  void step(const OptionalTensor& found_inf, const OptionalTensor& grad_scale) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    engine_.step({.found_inf = number(found_inf), .grad_scale = number(grad_scale)});
  }

  Tensor skipped() const { return engine_.skipped().defined() ? engine_.skipped() : at::zeros({}, at::kLong); }

  // Takes over what another optimizer saved: its groups {"optimizer", "options", "parameters"}, in which `parameters`
  // are names or, to be matched by position, their number; and tensors named "<group>.<place>.<field>".
  // Returns the saved group that each group here came from.
  std::vector<int64_t> restore(const std::string& groups, const Names& keys, const Tensors& tensors,
                               const OptionalTensor& skipped) {
    Snapshot snapshot{{{"format", 1}, {"groups", Json::parse(groups)}}, {}};
    const auto names = names_of(snapshot.header["groups"]);
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto [group, place, field] = split(keys[i]);
      snapshot.tensors.emplace_back("state." + names.at(group).at(place) + "." + field, tensors[i]);
    }
    if (engine_.skipped().defined())
      snapshot.tensors.emplace_back("skipped", skipped.value_or(at::zeros_like(engine_.skipped())));
    auto restored = engine_.restore(snapshot, "load_state_dict");
    std::vector<int64_t> sources;
    for (size_t g = 0; g < restored.size(); ++g) {
      sources.push_back(static_cast<int64_t>(restored[g].source));
      replace(static_cast<int64_t>(g), std::move(restored[g].options));
    }
    return sources;
  }

  // Names, and for each six tensors: singular values, SNR, gain, theory, ‖W‖, ‖O‖.
  std::tuple<Names, Tensors> spectra(const OptionalTensor& grad_scale) const {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    Names names;
    Tensors values;
    for (const auto& [name, spectrum, weight_norm, update_norm] : engine_.spectra(number(grad_scale))) {
      names.push_back(name);
      for (const auto& value :
           {spectrum.singular_values, spectrum.snr, spectrum.gain, spectrum.theory, weight_norm, update_norm})
        values.push_back(value);
    }
    return {names, values};
  }

 private:
  static Tensor number(const OptionalTensor& given) { return given ? given->reshape({}) : Tensor(); }

  void replace(int64_t index, std::unique_ptr<Options> options) {
    const auto& group = engine_.groups().at(index);
    engine_.set_group(index, *options, group.parameters, group.names);
    options_[index] = std::move(options);
  }

  // "<group>.<place>.<field>".
  static std::tuple<size_t, size_t, std::string> split(const std::string& key) {
    const auto first = key.find('.'), second = key.find('.', first + 1);
    return {std::stoul(key), std::stoul(key.substr(first + 1)), key.substr(second + 1)};
  }

  // The names of the saved parameters; where there are none, those of the parameters at the same places here.
  std::vector<Names> names_of(Json& groups) const {
    std::vector<Names> names;
    for (size_t g = 0; g < groups.size(); ++g) {
      TORCH_CHECK_VALUE(groups[g].at("optimizer").is_string(),
                        "load_state_dict: the state was not saved by an optimizer of prism_optim: its groups name no "
                        "'optimizer'");
      Json& parameters = groups[g]["parameters"];
      if (parameters.is_number()) {
        const auto& ours = engine_.groups();
        TORCH_CHECK_VALUE(groups.size() == ours.size(), "load_state_dict: expected ", ours.size(),
                          " parameter groups, got ", groups.size());
        TORCH_CHECK_VALUE(parameters == ours[g].names.size(), "load_state_dict: parameter group ", g, " has ",
                          ours[g].names.size(), " parameters here, but ", parameters.dump(), " in the saved state");
        parameters = ours[g].names;
      }
      names.push_back(parameters.get<Names>());
    }
    return names;
  }

  Engine engine_;
  std::vector<std::unique_ptr<Options>> options_;
  std::vector<Names> given_;
};

// Options of torch's optimizers. In a group of ours they are mistakes, as are ours in a group whose optimizer has none.
const Names kOptionsOfTorch = {"foreach",  "fused",           "differentiable", "dampening",
                               "ns_steps", "ns_coefficients", "adjust_lr_fn",   "decoupled_weight_decay"};

// Refuses keys of a group that read like options: those of others, and names that are nearly right. Keys of the owner's
// (`lr_scale`, `name`) pass.
void check_keys(const std::string& optimizer, const Names& keys) {
  Names known, any = kOptionsOfTorch;
  for (const auto& name : optimizer_names()) {
    const auto options = make_options(name);
    for (const auto& line : options->table()) (name == optimizer ? known : any).push_back(line.name);
  }
  any.insert(any.begin(), known.begin(), known.end());
  const auto is_known = [&](const std::string& key) {
    return std::find(known.begin(), known.end(), key) != known.end();
  };
  for (const auto& key : keys) {
    if (is_known(key)) continue;
    const size_t most = key.size() < 8 ? 1 : 2;  // letters that may be wrong
    const auto found = std::min_element(any.begin(), any.end(), [&](const std::string& a, const std::string& b) {
      return io::edit_distance(key, a) < io::edit_distance(key, b);
    });
    const auto& near = *found;
    TORCH_CHECK_VALUE(
        io::edit_distance(key, near) > most, optimizer, ": unknown option '", key, "' in a parameter group; ",
        is_known(near) ? "did you mean '" + near + "'?" : "'" + near + "' is an option of other optimizers.",
        " The options are ", c10::Join(", ", known));
  }
}

constexpr std::array<std::pair<Only, const char*>, 3> kOnly = {
    {{Only::Any, "any"}, {Only::Depthwise, "depthwise"}, {Only::LastMatrix, "last matrix"}}};

std::string word_of(Only only) {
  return std::find_if(kOnly.begin(), kOnly.end(), [&](const auto& line) { return line.first == only; })->second;
}

Only only_of(const std::string& word) {
  const auto found = std::find_if(kOnly.begin(), kOnly.end(), [&](const auto& line) { return line.second == word; });
  TORCH_CHECK_VALUE(found != kOnly.end(), "routing: 'only' of a rule must be any, depthwise or last matrix, got '",
                    word, "'");
  return found->first;
}

std::string rules_text(const std::string& matrices, const std::string& rest, const std::optional<Names>& heads) {
  Json lines = Json::array();
  for (const auto& rule : default_rules(*make_options(matrices), *make_options(rest), heads)) {
    lines.push_back({{"label", rule.label},
                     {"pattern", rule.pattern},
                     {"min_dimensions", rule.min_dimensions},
                     {"max_dimensions", rule.max_dimensions},
                     {"only", word_of(rule.only)},
                     {"required", rule.required},
                     {"optimizer", rule.options->name()}});
  }
  return lines.dump();
}

std::tuple<std::vector<int64_t>, std::string> route(const Tensors& parameters, const Names& names,
                                                    const std::string& rules) {
  TORCH_CHECK(names.size() == parameters.size(), "routing: got ", parameters.size(), " parameters and ", names.size(),
              " names");
  Rules list;
  for (const auto& line : Json::parse(rules)) {
    list.push_back({.label = line.at("label").get<std::string>(),
                    .pattern = line.at("pattern").get<std::string>(),
                    .min_dimensions = line.at("min_dimensions").get<int64_t>(),
                    .max_dimensions = line.at("max_dimensions").get<int64_t>(),
                    .only = only_of(line.at("only").get<std::string>()),
                    .required = line.at("required").get<std::string>(),
                    .options = make_options(line.at("optimizer").get<std::string>())});
  }
  std::vector<std::pair<std::string, Tensor>> named;
  for (size_t p = 0; p < parameters.size(); ++p) named.emplace_back(names[p], parameters[p]);
  const Routing routing(std::move(list), Parameters(named));
  std::vector<int64_t> taken;
  for (const auto& line : routing.lines()) taken.push_back(static_cast<int64_t>(line.rule));
  std::ostringstream table;
  table << routing;
  return {taken, table.str()};
}

}  // namespace

TORCH_LIBRARY(prism, library) {
  library.def("tables() -> str", &tables);
  library.def("plain_names(str[] names) -> str[]", &plain_names);
  library.def("check_keys(str optimizer, str[] keys) -> ()", &check_keys);
  library.def("default_rules(str matrices, str rest, str[]? heads) -> str", &rules_text);
  library.def("route(Tensor[] parameters, str[] names, str rules) -> (int[], str)");
  library.class_<PythonEngine>("Engine")
      .def(torch::init<>())
      .def("set_group", &PythonEngine::set_group)
      .def("resize", &PythonEngine::resize)
      .def("set_options", &PythonEngine::set_options)
      .def("name_parameters", &PythonEngine::name_parameters)
      .def("set_numbers", &PythonEngine::set_numbers)
      .def("make_state", &PythonEngine::make_state)
      .def("state", &PythonEngine::state)
      .def("reset_state", &PythonEngine::reset_state)
      .def("put_state", &PythonEngine::put_state)
      .def("step", &PythonEngine::step)
      .def("skipped", &PythonEngine::skipped)
      .def("restore", &PythonEngine::restore)
      .def("spectra", &PythonEngine::spectra);
}

TORCH_LIBRARY_IMPL(prism, CompositeExplicitAutograd, library) { library.impl("route", &route); }

}  // namespace prism
