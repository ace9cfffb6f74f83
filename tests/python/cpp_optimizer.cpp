// torch.ops.prism_test.train runs the C++ optimizers on given weights and gradients, for comparison with Python's.

#include <torch/library.h>

#include "prism/optim/mixed.h"
#include "prism/optim/registry.h"

namespace {

using at::Tensor;

std::unique_ptr<prism::Optimizer> make(const std::string& name, const prism::Parameters& parameters,
                                       const prism::Json& options) {
  if (name != "mixed") return prism::make_optimizer(name, parameters, options);
  return std::make_unique<prism::Mixed>(parameters, *prism::make_options("prism", options.at("prism")),
                                        *prism::make_options("adamw", options.at("adamw")));
}

// The gradients of all steps, one after the other: gradients[step·count + parameter].
std::vector<Tensor> train(const std::vector<Tensor>& weights, const std::vector<std::string>& names,
                          const std::vector<Tensor>& gradients, const std::string& name, const std::string& options) {
  std::vector<std::pair<std::string, Tensor>> named;
  for (size_t p = 0; p < weights.size(); ++p) named.emplace_back(names[p], weights[p].clone().set_requires_grad(true));
  const auto optimizer = make(name, prism::Parameters(named), prism::Json::parse(options));
  for (size_t first = 0; first < gradients.size(); first += weights.size()) {
    for (size_t p = 0; p < weights.size(); ++p) named[p].second.mutable_grad() = gradients[first + p];
    optimizer->step();
  }
  std::vector<Tensor> result;
  for (const auto& [label, weight] : named) result.push_back(weight.detach());
  return result;
}

}  // namespace

TORCH_LIBRARY(prism_test, library) {
  library.def("train(Tensor[] weights, str[] names, Tensor[] gradients, str name, str options) -> Tensor[]");
}
TORCH_LIBRARY_IMPL(prism_test, CompositeExplicitAutograd, library) { library.impl("train", &train); }
