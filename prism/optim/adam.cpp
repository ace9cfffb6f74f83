#include "prism/optim/adam.h"

#include <ATen/ops/maximum.h>
#include <ATen/ops/pow.h>

#include "prism/optim/matrix.h"
#include "prism/optim/option_types.h"

namespace prism {

std::vector<Field> AdamFamilyOptions::fields(at::IntArrayRef shape) const {
  std::vector<Field> list = {{"step", {}, Storage::Counter}, {"exp_avg", shape.vec()}, {"exp_avg_sq", shape.vec()}};
  if (amsgrad()) list.push_back({"max_exp_avg_sq", shape.vec()});
  return list;
}

Tensor adam_direction(const Tensor& G, AdamState& state, const AdamFamilyOptions& options) {
  const auto [beta1, beta2] = options.betas();
  state.step.add_(1);
  state.m.lerp_(G, 1 - beta1);
  state.v.mul_(beta2).addcmul_(G, G, 1 - beta2);
  Tensor v = state.v;
  if (state.v_max.defined()) v = state.v_max.copy_(at::maximum(state.v_max, state.v));
  // 1 − βᵗ in float64: for β near 1 it cancels.
  const Tensor t = per_entry(state.step, G).to(at::kDouble);
  const Tensor correction1 = (1 - at::pow(beta1, t)).to(G.scalar_type());
  const Tensor correction2 = (1 - at::pow(beta2, t)).sqrt().to(G.scalar_type());
  return state.m / (v.sqrt().div_(correction2).add_(options.eps()).mul_(correction1));
}

Tensor AdamFamilyOptions::direction(const Tensor& G, State& state) const {
  AdamState adam{state["step"], state["exp_avg"], state["exp_avg_sq"], state["max_exp_avg_sq"]};
  return adam_direction(G, adam, *this);
}

void AdamFamilyOptions::check() const {
  Options::check();
  const auto [beta1, beta2] = betas();
  TORCH_CHECK_VALUE(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1, name(),
                    ": betas must be from 0 to below 1, got (", beta1, ", ", beta2, ")");
  TORCH_CHECK_VALUE(eps() >= 0, name(), ": eps must be 0 or more, got ", eps());
}

std::vector<Option> AdamFamilyOptions::table() {
  auto betas = option("betas", betas_, "(β₁, β₂) of the first and second moments");
  betas.set = [this, set = betas.set](const Json& value) {
    set(value);
    betas_are_set_ = true;
  };
  return Options::table() + std::vector<Option>{
                                betas,
                                option("eps", eps_, "ε added to the denominator"),
                                option("amsgrad", amsgrad_, "divide by the largest second moment so far"),
                            };
}

}  // namespace prism
