#pragma once

#include "prism/optim/adam.h"

namespace prism {

// torch.optim.AdamW (Loshchilov & Hutter 2019): Adam with decoupled weight decay.
class AdamWOptions : public AdamFamilyOptionsOf<AdamWOptions> {
 public:
  AdamWOptions(double lr = 1e-3) : AdamFamilyOptionsOf(lr, /*weight_decay=*/0.01) {}  // NOLINT: as torch's options
  std::string name() const override { return "adamw"; }
};

class AdamW : public OptimizerOf<AdamWOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace prism
