#pragma once

#include "prism/optim/rmsspectral.h"

namespace prism {

// ADAspectral (Carlson et al. 2015): RMSspectral with a sum in place of the average,
//   v ← v + G²;   d = √(√v + ε);   W ← (1 − lr·λ)W − lr·sharp(G/d)/d
class ADAspectralOptions : public SpectralOptionsOf<ADAspectralOptions> {
 public:
  ADAspectralOptions(double lr = 1e-3)
      : SpectralOptionsOf(lr, /*weight_decay=*/0, "polar_express") {}  // NOLINT: as torch's options

  PRISM_OPTION(ADAspectralOptions, double, eps, = 1e-8);

 public:
  std::string name() const override { return "adaspectral"; }
  std::vector<Field> fields(at::IntArrayRef shape) const override { return {{"sum", shape.vec()}}; }
  Tensor direction(const Tensor& G, State& state) const override;
  void check() const override;
  std::vector<Option> table() override;
};

class ADAspectral : public OptimizerOf<ADAspectralOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace prism
