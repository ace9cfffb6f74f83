#pragma once

#include "prism/optim/adam.h"

namespace prism {

// (β₁, β₂) of AdamW inside Mixed and in the trainer, where they were not set: what language models are trained with.
// AdamW alone has torch's.
inline constexpr std::pair<double, double> kMixedBetas = {0.9, 0.95};

// torch.optim.AdamW (Loshchilov & Hutter 2019): Adam with decoupled weight decay.
class AdamWOptions : public AdamFamilyOptionsOf<AdamWOptions> {
 public:
  AdamWOptions(double lr = 1e-3) : AdamFamilyOptionsOf(lr, /*weight_decay=*/0.01) {}  // NOLINT: as torch's options
  std::string name() const override { return "adamw"; }
  void use_mixed_defaults() override {
    if (!betas_are_set_) betas_ = kMixedBetas;
  }
};

class AdamW : public OptimizerOf<AdamWOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace prism
