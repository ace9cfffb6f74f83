#pragma once

#include "prism/optim/optimizer.h"

namespace prism {

// torch.optim.Adagrad (Duchi et al. 2011), element by element, t counted per parameter; weight decay is added to the
// gradient:
//   s ← s + G²;  U = G / (√s + ε) / (1 + (t−1)·lr_decay)
class AdaGradOptions : public OptionsOf<AdaGradOptions> {
 public:
  AdaGradOptions(double lr = 1e-2) : OptionsOf(lr, /*weight_decay=*/0) {}  // NOLINT: as torch's options

  PRISM_OPTION(AdaGradOptions, double, lr_decay, = 0);
  PRISM_OPTION(AdaGradOptions, double, initial_accumulator_value, = 0);
  PRISM_OPTION(AdaGradOptions, double, eps, = 1e-10);

 public:
  std::string name() const override { return "adagrad"; }
  bool couples_decay() const override { return true; }
  std::vector<Field> fields(at::IntArrayRef shape) const override;
  Tensor direction(const Tensor& G, State& state) const override;
  void check() const override;
  bool can_be_captured() const override { return true; }
  std::vector<Option> table() override;
};

class AdaGrad : public OptimizerOf<AdaGradOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace prism
