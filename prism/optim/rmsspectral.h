#pragma once

#include "prism/optim/ssd.h"

namespace prism {

// RMSspectral (Carlson et al. 2015): spectral descent in coordinates scaled by a running second moment,
//   v ← βv + (1−β)G²;   d = √(√v + ε);   W ← (1 − lr·λ)W − lr·sharp(G/d)/d       (division element by element)
class RMSspectralOptions : public SpectralOptionsOf<RMSspectralOptions> {
 public:
  RMSspectralOptions(double lr = 1e-3)
      : SpectralOptionsOf(lr, /*weight_decay=*/0, "polar_express") {}  // NOLINT: as torch's options

  PRISM_OPTION(RMSspectralOptions, double, beta, = 0.99);
  PRISM_OPTION(RMSspectralOptions, double, eps, = 1e-8);

 public:
  std::string name() const override { return "rmsspectral"; }
  std::vector<Field> fields(at::IntArrayRef shape) const override { return {{"square_avg", shape.vec()}}; }
  Tensor direction(const Tensor& G, State& state) const override;
  void check() const override;
  std::vector<Option> table() override;
};

// sharp(G/d)/d with d = √(√v + ε).
Tensor scaled_sharp(const Tensor& G, const Tensor& v, double eps, const PolarOptions& options);

class RMSspectral : public OptimizerOf<RMSspectralOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace prism
