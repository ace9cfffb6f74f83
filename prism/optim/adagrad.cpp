#include "prism/optim/adagrad.h"

#include "prism/optim/kernel_rule.h"
#include "prism/optim/matrix.h"

namespace prism {

std::vector<Field> AdaGradOptions::fields(at::IntArrayRef shape) const {
  return {{"step", {}, Storage::Counter}, {"sum", shape.vec(), Storage::State, initial_accumulator_value()}};
}

Tensor AdaGradOptions::direction(const Operands& operands, State& state) const {
  const Tensor& G = operands.T;
  const Tensor step = state["step"].add_(1);
  const Tensor sum = state["sum"].addcmul_(G, G);
  const Tensor decay = (per_entry(step, G).to(at::kDouble) - 1) * lr_decay() + 1;
  return G / (sum.sqrt().add_(eps())) / decay.to(G.scalar_type());
}

std::unique_ptr<KernelRule> AdaGradOptions::kernel_rule() const {
  return std::make_unique<KernelRule>(ElementwiseKernel{
      .rule = {.kind = cuda::Elementwise::AdaGrad, .couples_decay = true, .eps = eps(), .lr_decay = lr_decay()},
      .fields = {"sum", "", ""}});
}

}  // namespace prism
