#include "prism/optim/mixed.h"

#include <algorithm>

namespace prism {
namespace {

std::unique_ptr<Options> with_mixed_defaults(const Options& options) {
  auto copy = options.copy();
  copy->use_mixed_defaults();
  return copy;
}

std::unique_ptr<Options> first_options(const Rules& rules) {
  TORCH_CHECK(!rules.empty() && rules.front().options != nullptr,
              "mixed: expected at least one rule with options, got none");
  return with_mixed_defaults(*rules.front().options);
}

}  // namespace

Mixed::Mixed(const Parameters& parameters, const Options& matrices, const Options& rest)
    : Mixed(parameters, default_rules(matrices, rest)) {}

Mixed::Mixed(const Parameters& parameters, const Rules& rules, const std::vector<Tensor>& here)
    : Optimizer(first_options(rules)), routing_(rules, parameters) {
  std::vector<const Options*> distinct;
  for (const auto& rule : rules) {
    if (std::find(distinct.begin(), distinct.end(), rule.options.get()) == distinct.end())
      distinct.push_back(rule.options.get());
  }
  // The last default rule is the one for hidden matrices, whatever optimizes them.
  std::stable_partition(distinct.begin(), distinct.end(), [&](const Options* options) {
    return options->takes_matrices() || options == rules.back().options.get();
  });
  for (const Options* options : distinct) {
    Parameters group;
    bool is_used = false;
    for (size_t p = 0; p < parameters.size(); ++p) {
      if (rules[routing_.lines()[p].rule].options.get() != options) continue;
      is_used = true;
      const Tensor& stepped = here.empty() ? parameters.tensors[p] : here.at(p);
      if (stepped.defined()) group.add(parameters.names[p], stepped);
    }
    if (is_used) add_param_group(group, *with_mixed_defaults(*options));
  }
}

}  // namespace prism
