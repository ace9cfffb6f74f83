// torch.ops.prism: the engine as stateless operators, one call per parameter group. The caller owns parameters,
// gradients and state; options and layouts travel as JSON text.
//
//   tables()                    every optimizer's options: {"prism": [{"name", "type", "doc", "default",
//                               "mixed_default"}, …], …}, where the last is the default inside Mixed
//   check(optimizer, options)   refuses unknown names, wrong types and impossible settings
//   make_state(…)               fresh stacked state, buckets in order of first appearance, and within a bucket its
//                               fields; with the layout: {"names": […], "buckets": [{"entries": [[parameter, part], …],
//                               "shape": […], "fields": […]}, …]}
//   step_(…)                    one step of a group, on exactly those stacks; returns 0, or the bytes of workspace it
//                               needs when those given are too few: then nothing was done
//   all_finite(gradients)       a boolean on the device of the first
//   spectra(…)                  names, and for each six tensors: singular values, SNR, gain, theory, ‖W‖, ‖O‖
//   default_rules(…), route(…)  which optimizer takes which parameter, and the table to print
//   plain_names(names)          parameter names without what wrappers put into them

#include <ATen/ops/ones.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <memory>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "prism/optim/gradients.h"
#include "prism/optim/registry.h"
#include "prism/optim/routing.h"

namespace prism {
namespace {

using Tensors = std::vector<Tensor>;
using Names = std::vector<std::string>;
using OptionalTensor = std::optional<Tensor>;
using OptionalTensors = c10::List<std::optional<Tensor>>;

std::unique_ptr<Options> parse_options(const std::string& optimizer, const std::string& options) {
  return make_options(optimizer, Json::parse(options));
}

Json layout_of(const std::vector<Bucket>& buckets, const Names& names) {
  Json layout = {{"names", names}, {"buckets", Json::array()}};
  for (const auto& bucket : buckets) {
    Json entries = Json::array();
    for (const auto& entry : bucket.entries) entries.push_back({entry.parameter, entry.part});
    Json fields = Json::array();
    for (const auto& [field, stack] : bucket.state) fields.push_back(field);
    layout["buckets"].push_back({{"entries", entries}, {"shape", bucket.shape}, {"fields", fields}});
  }
  return layout;
}

struct Group {
  std::unique_ptr<Options> options;
  Names names;
  Tensors parameters;
  Tensors gradients;
  std::vector<Bucket> buckets;
};

std::vector<Bucket> buckets_of(const Json& layout, const Tensors& parameters, const Tensors& state) {
  std::vector<Bucket> buckets;
  size_t used = 0;
  for (const auto& line : layout.at("buckets")) {
    std::vector<Bucket::Entry> entries;
    for (const auto& entry : line.at("entries")) entries.push_back({entry[0].get<size_t>(), entry[1].get<int64_t>()});
    const Tensor& lead = parameters.at(entries.at(0).parameter);
    Bucket bucket{
        std::move(entries), line.at("shape").get<std::vector<int64_t>>(), lead.scalar_type(), lead.device(), {}};
    for (const auto& field : line.at("fields")) {
      TORCH_CHECK(used < state.size(), "step: the layout has more fields than the ", state.size(), " stacks of state");
      bucket.state.add(field.get<std::string>(), state[used++]);
    }
    buckets.push_back(std::move(bucket));
  }
  TORCH_CHECK(used == state.size(), "step: the layout has ", used, " fields, but ", state.size(),
              " stacks of state came");
  return buckets;
}

Tensors dense_gradients(const Group& group, const OptionalTensors& gradients) {
  TORCH_CHECK(gradients.size() == group.parameters.size() && group.names.size() == group.parameters.size(),
              group.options->name(), ": got ", group.parameters.size(), " parameters, ", gradients.size(),
              " gradients and ", group.names.size(), " names");
  Tensors result;
  for (size_t p = 0; p < gradients.size(); ++p) {
    const std::optional<Tensor> given = gradients.get(p);
    const Tensor& gradient = result.emplace_back(given ? *given : Tensor());
    if (!gradient.defined()) continue;
    const auto who = group.options->name() + ": the gradient of '" + group.names[p] + "'";
    TORCH_CHECK(gradient.layout() == at::kStrided, who, " must be dense, got ", gradient.layout(),
                "; make it dense first");
    TORCH_CHECK(!gradient.is_complex(), who, " must be real, got ", gradient.scalar_type());
    TORCH_CHECK(gradient.sizes() == group.parameters[p].sizes() && gradient.device() == group.parameters[p].device(),
                who, " must be ", group.parameters[p].sizes(), " on ", group.parameters[p].device(), ", got ",
                gradient.sizes(), " on ", gradient.device());
  }
  return result;
}

Group open_group(const Tensors& parameters, const OptionalTensors& gradients, const Tensors& state,
                 const std::string& layout, const std::string& optimizer, const std::string& options) {
  const Json parsed = Json::parse(layout);
  Group group{parse_options(optimizer, options), parsed.at("names").get<Names>(), parameters, {}, {}};
  group.gradients = dense_gradients(group, gradients);
  group.buckets = buckets_of(parsed, parameters, state);
  for (auto& bucket : group.buckets) follow(bucket, *group.options, group.parameters, group.names);
  return group;
}

std::string tables() {
  Json all = Json::object();
  for (const auto& name : optimizer_names()) {
    const auto options = make_options(name), mixed = make_options(name);
    mixed->use_mixed_defaults();
    const Json mixed_defaults = mixed->to_json();
    Json& lines = all[name] = Json::array();
    for (const auto& line : options->table()) {
      lines.push_back({{"name", line.name},
                       {"type", line.type},
                       {"doc", line.doc},
                       {"default", line.get()},
                       {"mixed_default", mixed_defaults.at(line.name)}});
    }
  }
  return all.dump();
}

void check(const std::string& optimizer, const std::string& options) { parse_options(optimizer, options); }

std::tuple<Tensors, std::string> make_stacks(const Tensors& parameters, const Names& names,
                                             const std::string& optimizer, const std::string& options) {
  TORCH_CHECK(names.size() == parameters.size(), optimizer, ": got ", parameters.size(), " parameters and ",
              names.size(), " names");
  const auto buckets = make_buckets(*parse_options(optimizer, options), parameters, names);
  Tensors stacks;
  for (const auto& bucket : buckets) {
    for (const auto& [field, stack] : bucket.state) stacks.push_back(stack);
  }
  return {stacks, layout_of(buckets, names).dump()};
}

int64_t step_(const Tensors& parameters, const OptionalTensors& gradients, const Tensors& state, const Tensor& lr,
              const OptionalTensor& gamma, const OptionalTensor& apply, const OptionalTensor& grad_scale,
              const OptionalTensor& workspace, const std::string& layout, const std::string& optimizer,
              const std::string& options) {
  at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  Group group = open_group(parameters, gradients, state, layout, optimizer, options);
  TORCH_CHECK_VALUE(lr.numel() == 1, optimizer, ": lr must be one number, got shape ", lr.sizes());
  if (lr.is_cpu()) {
    group.options->set_lr(lr.item<double>());
    group.options->check();
  }
  const auto flag = [](const OptionalTensor& given) { return given ? given->reshape({}) : Tensor(); };
  return step_buckets(
      *group.options, group.buckets, group.parameters, group.gradients,
      {.lr = lr.reshape({}), .apply = flag(apply), .grad_scale = flag(grad_scale), .gamma = flag(gamma)},
      workspace.value_or(Tensor()));
}

Tensor finite(const Tensors& gradients) {
  if (gradients.empty()) return at::ones({}, at::kBool);
  return all_finite(gradients, gradients.front().device());
}

std::tuple<Names, Tensors> spectra(const Tensors& parameters, const OptionalTensors& gradients, const Tensors& state,
                                   const OptionalTensor& grad_scale, const std::string& layout,
                                   const std::string& optimizer, const std::string& options) {
  at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  Group group = open_group(parameters, gradients, state, layout, optimizer, options);
  if (grad_scale) {
    for (auto& gradient : group.gradients) {
      if (gradient.defined()) gradient = gradient / grad_scale->to(gradient.device());
    }
  }
  Names names;
  Tensors values;
  for (const auto& bucket : group.buckets) {
    for (const auto& one : bucket_spectra(*group.options, bucket, group.names, group.parameters, group.gradients)) {
      names.push_back(one.name);
      for (const auto& value : {one.spectrum.singular_values, one.spectrum.snr, one.spectrum.gain, one.spectrum.theory,
                                one.weight_norm, one.update_norm}) {
        values.push_back(value);
      }
    }
  }
  return {names, values};
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
  library.def("check(str optimizer, str options) -> ()", &check);
  library.def("default_rules(str matrices, str rest, str[]? heads) -> str", &rules_text);
  library.def("make_state(Tensor[] parameters, str[] names, str optimizer, str options) -> (Tensor[], str)");
  library.def(
      "step_(Tensor(a!)[] parameters, Tensor?[] gradients, Tensor(b!)[] state, Tensor lr, Tensor? gamma, "
      "Tensor? apply, Tensor? grad_scale, Tensor(c!)? workspace, str layout, str optimizer, str options) -> int");
  library.def("all_finite(Tensor[] gradients) -> Tensor");
  library.def(
      "spectra(Tensor[] parameters, Tensor?[] gradients, Tensor[] state, Tensor? grad_scale, str layout, str "
      "optimizer, str options) "
      "-> (str[], Tensor[])");
  library.def("route(Tensor[] parameters, str[] names, str rules) -> (int[], str)");
}

TORCH_LIBRARY_IMPL(prism, CompositeExplicitAutograd, library) {
  library.impl("make_state", &make_stacks);
  library.impl("step_", &step_);
  library.impl("all_finite", &finite);
  library.impl("spectra", &spectra);
  library.impl("route", &route);
}

}  // namespace prism
