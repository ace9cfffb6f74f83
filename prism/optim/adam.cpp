#include "prism/optim/adam.h"

#include <ATen/ops/maximum.h>
#include <ATen/ops/pow.h>

#include "prism/optim/matrix.h"

namespace prism {

std::vector<Field> adam_fields(at::IntArrayRef shape, const AdamRule& rule) {
  std::vector<Field> list = {{"step", {}, Storage::Counter}, {"exp_avg", shape.vec()}, {"exp_avg_sq", shape.vec()}};
  if (rule.amsgrad) list.push_back({"max_exp_avg_sq", shape.vec()});
  return list;
}

std::pair<Tensor, Tensor> adam_corrections(const Tensor& steps, const Betas& betas, at::ScalarType type) {
  const Tensor t = steps.to(at::kDouble);  // for β near 1, 1 − βᵗ cancels
  return {(1 - at::pow(betas.first, t)).to(type), (1 - at::pow(betas.second, t)).sqrt().to(type)};
}

Tensor adam_direction(const Tensor& G, State& state, const AdamRule& rule) {
  const auto [beta1, beta2] = rule.betas;
  const Tensor step = state["step"].add_(1);
  const Tensor m = state["exp_avg"].lerp_(G, 1 - beta1);
  Tensor v = state["exp_avg_sq"].mul_(beta2).addcmul_(G, G, 1 - beta2);
  if (const Tensor largest = state["max_exp_avg_sq"]; largest.defined()) v = largest.copy_(at::maximum(largest, v));
  const auto [correction1, root_correction2] = adam_corrections(per_entry(step, G), rule.betas, G.scalar_type());
  return m / (v.sqrt().div_(root_correction2).add_(rule.eps).mul_(correction1));
}

std::unique_ptr<KernelRule> adam_kernel(const AdamRule& rule, bool couples_decay) {
  return std::make_unique<KernelRule>(ElementwiseKernel{.rule = {.kind = cuda::Elementwise::Adam,
                                                                 .couples_decay = couples_decay,
                                                                 .beta1 = rule.betas.first,
                                                                 .beta2 = rule.betas.second,
                                                                 .eps = rule.eps},
                                                        .fields = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}});
}

}  // namespace prism
