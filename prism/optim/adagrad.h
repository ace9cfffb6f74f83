#pragma once

#include "prism/optim/optimizer.h"

namespace prism {

// torch.optim.Adagrad (Duchi et al. 2011), element by element, t counted per parameter; weight decay is added to the
// gradient:
//   s ← s + G²;  U = G / (√s + ε) / (1 + (t−1)·lr_decay)
class AdaGradOptions : public OptionsOf<AdaGradOptions> {
 public:
  AdaGradOptions(double lr = 1e-2) : OptionsOf(lr, /*weight_decay=*/0) { document_coupled_decay(); }

  PRISM_OPTION(double, lr_decay, 0, kNotNegative, "divide the update by 1 + (t−1)·lr_decay");
  PRISM_OPTION(double, initial_accumulator_value, 0, kNotNegative, "initial value of the sum of squares");
  PRISM_OPTION(double, eps, 1e-10, kNotNegative, "ε added to the denominator");

 public:
  std::string name() const override { return "adagrad"; }
  bool couples_decay() const override { return true; }
  std::vector<Field> fields(at::IntArrayRef shape) const override;
  Tensor direction(const Operands& operands, State& state) const override;
  std::unique_ptr<KernelRule> kernel_rule() const override;
};

using AdaGrad = OptimizerOf<AdaGradOptions>;

}  // namespace prism
