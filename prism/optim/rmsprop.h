#pragma once

#include "prism/optim/optimizer.h"

namespace prism {

// torch.optim.RMSprop (Tieleman & Hinton 2012), element by element; weight decay is added to the gradient:
//   v ← αv + (1−α)G²;  centered: g ← αg + (1−α)G, v − g² stands for v;  X = G / (√v + ε);
//   momentum: b ← μb + X;  U = b or X
class RMSpropOptions : public OptionsOf<RMSpropOptions> {
 public:
  RMSpropOptions(double lr = 1e-2) : OptionsOf(lr, /*weight_decay=*/0) {}  // NOLINT: as torch's options

  PRISM_OPTION(RMSpropOptions, double, alpha, = 0.99);
  PRISM_OPTION(RMSpropOptions, double, eps, = 1e-8);
  PRISM_OPTION(RMSpropOptions, double, momentum, = 0);
  PRISM_OPTION(RMSpropOptions, bool, centered, = false);

 public:
  std::string name() const override { return "rmsprop"; }
  bool couples_decay() const override { return true; }
  std::vector<Field> fields(at::IntArrayRef shape) const override;
  Tensor direction(const Tensor& G, State& state) const override;
  void check() const override;
  bool can_be_captured() const override { return true; }
  std::vector<Option> table() override;
};

class RMSprop : public OptimizerOf<RMSpropOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace prism
