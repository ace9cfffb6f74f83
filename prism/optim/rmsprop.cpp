#include "prism/optim/rmsprop.h"

#include "prism/optim/kernel_rule.h"

namespace prism {

std::vector<Field> RMSpropOptions::fields(at::IntArrayRef shape) const {
  std::vector<Field> list = {{"square_avg", shape.vec()}};
  if (centered()) list.push_back({"grad_avg", shape.vec()});
  if (momentum() > 0) list.push_back({"momentum_buffer", shape.vec()});
  return list;
}

Tensor RMSpropOptions::direction(const Operands& operands, State& state) const {
  const Tensor& G = operands.T;
  Tensor v = state["square_avg"].mul_(alpha()).addcmul_(G, G, 1 - alpha());
  if (centered()) {
    const Tensor g = state["grad_avg"].lerp_(G, 1 - alpha());
    v = v.addcmul(g, g, -1).clamp_min_(0);  // rounding can make it negative
  }
  const Tensor X = G / v.sqrt().add_(eps());
  return momentum() > 0 ? state["momentum_buffer"].mul_(momentum()).add_(X) : X;
}

std::unique_ptr<KernelRule> RMSpropOptions::kernel_rule() const {
  return std::make_unique<KernelRule>(ElementwiseKernel{.rule = {.kind = cuda::Elementwise::RMSprop,
                                                                 .couples_decay = true,
                                                                 .beta1 = momentum(),
                                                                 .beta2 = alpha(),
                                                                 .eps = eps()},
                                                        .fields = {"square_avg", "grad_avg", "momentum_buffer"}});
}

}  // namespace prism
