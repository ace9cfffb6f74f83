#pragma once

#include "prism/optim/optimizer.h"

namespace prism {

// torch.optim.RMSprop (Tieleman & Hinton 2012), element by element; weight decay is added to the gradient:
//   v ← αv + (1−α)G²;  centered: g ← αg + (1−α)G, v − g² replaces v;  X = G / (√v + ε);
//   momentum: b ← μb + X;  U = b or X
class RMSpropOptions : public OptionsOf<RMSpropOptions> {
 public:
  RMSpropOptions(double lr = 1e-2) : OptionsOf(lr, /*weight_decay=*/0) { document_coupled_decay(); }

  PRISM_OPTION(double, alpha, 0.99, kUnit, "α of the average of squares");
  PRISM_OPTION(double, eps, 1e-8, kNotNegative, "ε added to the denominator");
  PRISM_OPTION(double, momentum, 0, kNotNegative, "μ of the momentum on the scaled gradient");
  PRISM_OPTION(bool, centered, false, kAny, "subtract the square of the average gradient");

 public:
  std::string name() const override { return "rmsprop"; }
  bool couples_decay() const override { return true; }
  std::vector<Field> fields(at::IntArrayRef shape) const override;
  Tensor direction(const Operands& operands, State& state) const override;
  std::unique_ptr<KernelRule> kernel_rule() const override;
};

using RMSprop = OptimizerOf<RMSpropOptions>;

}  // namespace prism
