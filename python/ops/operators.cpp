// torch.ops.prism and torch.classes.prism: what prism_optim needs of the library.
//
//   tables()                    every optimizer: {"prism": {"class", "summary", "options": [{"name", "type", "doc",
//                               "default", "mixed_default"}, …]}, …}, where the last is the default inside Mixed
//   default_rules(…), route(…)  which optimizer takes which parameter, and the table to print
//   plain_names(names)          parameter names without what wrappers put into them
//   check_group(…)              refuses a group for another optimizer, and keys that read like options it does not have
//   Engine                      groups of parameters with their options and state, which it compares with what it holds;
//                               its step takes no options and no tensors

#include <torch/custom_class.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "prism/io/spelling.h"
#include "prism/optim/registry.h"
#include "prism/optim/routing.h"
#include "python/ops/python_engine.h"

namespace prism {
namespace {

std::string tables() {
  Json all = Json::object();
  for (const auto& info : optimizers()) {
    const auto options = make_options(info.name), mixed = make_mixed_options(info.name);
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

// Options of torch's optimizers. In a group of ours they are mistakes, as are ours in a group whose optimizer has none.
const Names kOptionsOfTorch = {"foreach",  "fused",           "differentiable", "dampening",
                               "ns_steps", "ns_coefficients", "adjust_lr_fn",   "decoupled_weight_decay"};

// Refuses a group of a class for one optimizer (`kind`) that is for another, and keys that read like options: those of
// other optimizers, and names that are nearly right. Keys of the owner's (`lr_scale`, `name`) pass.
void check_group(const std::string& class_name, const std::optional<std::string>& kind,
                 const std::optional<std::string>& optimizer, const Names& keys) {
  TORCH_CHECK_VALUE(optimizer,
                    "a group of Mixed must name its optimizer, e.g. optimizer='prism'; param_groups(model) "
                    "makes such groups");
  TORCH_CHECK_VALUE(!kind || *kind == *optimizer, class_name, " got a group for optimizer '", *optimizer,
                    "'; use Mixed for groups of several optimizers");
  Names known, any = kOptionsOfTorch;
  for (const auto& name : optimizer_names()) {
    const auto options = make_options(name);
    for (const auto& line : options->table()) (name == *optimizer ? known : any).push_back(line.name);
  }
  if (known.empty()) return;  // no optimizer has that name: Python lists those there are
  any.insert(any.begin(), known.begin(), known.end());
  const auto is_known = [&](const std::string& key) {
    return std::find(known.begin(), known.end(), key) != known.end();
  };
  for (const auto& key : keys) {
    if (is_known(key) || key == "params" || key == "param_names" || key == "optimizer") continue;
    const size_t most = key.size() < 8 ? 1 : 2;  // letters that may be wrong
    const auto found = std::min_element(any.begin(), any.end(), [&](const std::string& a, const std::string& b) {
      return io::edit_distance(key, a) < io::edit_distance(key, b);
    });
    const auto& near = *found;
    TORCH_CHECK_VALUE(
        io::edit_distance(key, near) > most, *optimizer, ": unknown option '", key, "' in a parameter group; ",
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

using EnginePtr = c10::intrusive_ptr<PythonEngine>;

}  // namespace

TORCH_LIBRARY(prism, library) {
  library.def("tables() -> str", &tables);
  library.def("plain_names(str[] names) -> str[]", &plain_names);
  library.def("check_group(str class_name, str? kind, str? optimizer, str[] keys) -> ()", &check_group);
  library.def("default_rules(str matrices, str rest, str[]? heads) -> str", &rules_text);
  library.def("route(Tensor[] parameters, str[] names, str rules) -> (int[], str)");
  library.class_<PythonEngine>("Engine")
      .def(torch::init<>())
      .def("set_groups", &PythonEngine::set_groups)
      .def("names", &PythonEngine::names)
      .def("place_numbers", &PythonEngine::place_numbers)
      .def("set_numbers", &PythonEngine::set_numbers)
      .def("set_options", &PythonEngine::set_options)
      .def("make_state", &PythonEngine::make_state)
      .def("state", &PythonEngine::state)
      .def("take_state", &PythonEngine::take_state)
      .def("step", &PythonEngine::step)
      .def("cut_fields", &PythonEngine::cut_fields)
      .def("whole_state", &PythonEngine::whole_state)
      .def("places", &PythonEngine::places)
      .def("plan", &PythonEngine::plan)
      .def("check_plan", &PythonEngine::check_plan)
      .def("bytes_sent", &PythonEngine::bytes_sent)
      .def("skipped", &PythonEngine::skipped)
      // ShardedEngine of distributed.py replaces these. Here no parameter is cut, and all state can be copied.
      .def("moved", [](const EnginePtr&) { return false; })
      .def("apart", [](const EnginePtr&) { return c10::Dict<int64_t, Fields>(); })
      .def("to_copy", [](const EnginePtr& engine) { return engine; })
      .def_pickle([](const EnginePtr& engine) { return engine->skipped(); },
                  [](const Tensor& skipped) { return PythonEngine::after(skipped); })
      .def("restore", &PythonEngine::restore)
      .def("spectra", &PythonEngine::spectra);
}

TORCH_LIBRARY_IMPL(prism, CompositeExplicitAutograd, library) { library.impl("route", &route); }

}  // namespace prism
