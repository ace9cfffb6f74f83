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

Tensor adam_direction(const Tensor& G, State& state, const AdamRule& rule) {
  const auto [beta1, beta2] = rule.betas;
  const Tensor step = state["step"].add_(1);
  const Tensor m = state["exp_avg"].lerp_(G, 1 - beta1);
  Tensor v = state["exp_avg_sq"].mul_(beta2).addcmul_(G, G, 1 - beta2);
  if (const Tensor largest = state["max_exp_avg_sq"]; largest.defined()) v = largest.copy_(at::maximum(largest, v));
  // 1 − βᵗ in float64: for β near 1 it cancels.
  const Tensor t = per_entry(step, G).to(at::kDouble);
  const Tensor correction1 = (1 - at::pow(beta1, t)).to(G.scalar_type());
  const Tensor correction2 = (1 - at::pow(beta2, t)).sqrt().to(G.scalar_type());
  return m / (v.sqrt().div_(correction2).add_(rule.eps).mul_(correction1));
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
