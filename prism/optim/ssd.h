#pragma once

#include "prism/optim/optimizer.h"
#include "prism/optim/spectral.h"

namespace prism {

// sharp(X) = ‖X‖_*·UVᵀ for X = UΣVᵀ: the steepest descent direction under the spectral norm, with the length that goes
// with it.
Tensor sharp(const Tensor& X, const PolarOptions& options);

// Stochastic spectral descent (Carlson et al. 2015): W ← (1 − lr·λ)W − lr·‖G‖_*·UVᵀ for G = UΣVᵀ. No state.
// The polar factor is Polar Express's rather than Jordan's: the nuclear norm is only as good as the factor it is taken
// from.
class SSDOptions : public SpectralOptionsOf<SSDOptions> {
 public:
  SSDOptions(double lr = 1e-3)
      : SpectralOptionsOf(lr, /*weight_decay=*/0, "polar_express") {}  // NOLINT: as torch's options

  std::string name() const override { return "ssd"; }
  std::vector<Field> fields(at::IntArrayRef /*shape*/) const override { return {}; }
  Tensor direction(const Tensor& G, State& state) const override;
};

class SSD : public OptimizerOf<SSDOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace prism
