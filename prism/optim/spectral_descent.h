#pragma once

#include "prism/optim/optimizer.h"
#include "prism/optim/spectral.h"

// Spectral descent without momentum (Carlson et al. 2015). The polar factor is computed with the Polar Express
// coefficients instead of Jordan's: the nuclear norm is only as accurate as the factor it is computed from.

namespace prism {

// sharp(X) = ‖X‖_*·UVᵀ for X = UΣVᵀ: the direction and length of steepest descent under the spectral norm.
Tensor sharp(const Tensor& X, const PolarOptions& options);

// Stochastic spectral descent: W ← (1 − lr·λ)W − lr·sharp(G). No state.
class SSDOptions : public SpectralOptions<SSDOptions> {
 public:
  SSDOptions(double lr = 1e-3) : SpectralOptions(lr, /*weight_decay=*/0, "polar_express") {}

  std::string name() const override { return "ssd"; }
  std::vector<Field> fields(at::IntArrayRef /*shape*/) const override { return {}; }
  Tensor direction(const Operands& operands, State& state) const override;
};

using SSD = OptimizerOf<SSDOptions>;

// RMSspectral: spectral descent in coordinates scaled by a running second moment,
//   v ← βv + (1−β)G²;   d = √(√v + ε);   W ← (1 − lr·λ)W − lr·sharp(G/d)/d       (division element by element)
class RMSspectralOptions : public SpectralOptions<RMSspectralOptions> {
 public:
  RMSspectralOptions(double lr = 1e-3) : SpectralOptions(lr, /*weight_decay=*/0, "polar_express") {}

  PRISM_OPTION(double, beta, 0.99, kFraction, "β of the average of squares");
  PRISM_OPTION(double, eps, 1e-8, kPositive, "ε added to √v");

 public:
  std::string name() const override { return "rmsspectral"; }
  std::vector<Field> fields(at::IntArrayRef shape) const override { return {{"square_avg", shape.vec()}}; }
  Tensor direction(const Operands& operands, State& state) const override;
};

using RMSspectral = OptimizerOf<RMSspectralOptions>;

// ADAspectral: RMSspectral with a sum in place of the average, v ← v + G².
class ADAspectralOptions : public SpectralOptions<ADAspectralOptions> {
 public:
  ADAspectralOptions(double lr = 1e-3) : SpectralOptions(lr, /*weight_decay=*/0, "polar_express") {}

  PRISM_OPTION(double, eps, 1e-8, kPositive, "ε added to √v");

 public:
  std::string name() const override { return "adaspectral"; }
  std::vector<Field> fields(at::IntArrayRef shape) const override { return {{"sum", shape.vec()}}; }
  Tensor direction(const Operands& operands, State& state) const override;
};

using ADAspectral = OptimizerOf<ADAspectralOptions>;

}  // namespace prism
