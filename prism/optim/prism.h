#pragma once

#include "prism/linalg/sketch.h"
#include "prism/optim/optimizer.h"
#include "prism/optim/spectral.h"

namespace prism {

// PRISM (Yang 2025, Algorithm 1): Muon with the innovation D = G − M in the denominator. For each matrix (m, n)
//   M ← βM + (1−β)G;   D = G − M;   T = M, or (1−β)G + βM with Nesterov
//   O = T (TᵀT + γ²DᵀD)^(−1/2)                 right side; for left and both sides see shaping.h
//   W ← (1 − lr·λ)W − lr·scale(m, n)·O
// The paper stacks M and does not say how Nesterov enters; T is our reading. Momentum starts at zero, which damps the
// update of step 1 by 1/√(1 + (γβ/(1−β))²): 0.0526 for the paper's values (0.1021 with Nesterov). With
// `bias_correction` step 1 is that of Muon.
class PrismOptions : public MomentumOptions<PrismOptions> {
 public:
  PrismOptions() : MomentumOptions(/*lr=*/0.02, /*weight_decay=*/0) {}
  PrismOptions(double lr) : PrismOptions() { this->lr(lr); }

  PRISM_OPTION(double, gamma, 1, kNotNegative, "damping γ ≥ 0 of noisy directions; 0 is Muon");
  PRISM_OPTION(Schedule, gamma_schedule, {}, kAny, "γ as a function of the step: a factor from 0 to 1");
  PRISM_OPTION(
      Side, side, Side::Short, kAny,
      "side of the Gram matrix; short and long: by the shape; inputs: right, or left if more than 4 times as "
      "wide as high; balanced: short, with a smaller γ for wide matrices; whitened: as inputs, but with "
      "covariance ema wide matrices are shaped on their short side, in coordinates in which the noise is white");
  PRISM_OPTION(
      CovarianceKind, covariance, CovarianceKind::Instant, kAny,
      "instant: of this step; ema: a dense average; sketch: its top eigenpairs; subspace: the same, tracked by "
      "subspace iteration");
  PRISM_OPTION(double, covariance_beta, 0.99, kFraction, "β₂ of the averaged covariances");
  PRISM_OPTION(int64_t, covariance_every, 1, kCount, "steps between two refreshes of the averaged covariances");
  PRISM_OPTION(int64_t, root_every, 16, kCount, "side whitened: steps between two computations of Ĉ^(−1/2)");
  PRISM_OPTION(int64_t, rank, 64, kCount, "rank of the sketch; at most the side of the matrix is used");

 public:
  std::string name() const override { return "prism"; }
  std::vector<Field> fields(at::IntArrayRef shape) const override;
  Operands operands(const Tensor& G, State& state) const override;
  Tensor direction(const Operands& operands, State& state) const override;
  int64_t operand_count() const override { return gamma() > 0 || covariance() != CovarianceKind::Instant ? 2 : 1; }
  std::vector<GramSide> gram_sides(at::IntArrayRef shape) const override;
  std::optional<Spectrum> spectrum(const Tensor& G, const State& state) const override;
  std::unique_ptr<KernelRule> kernel_rule() const override;
  void check() const override;
  void use_mixed_defaults() override;
  // The side that steps use: only a dense average can be whitened.
  Side used_side() const {
    return covariance() == CovarianceKind::Ema || side() != Side::Whitened ? side() : Side::Inputs;
  }
  ShapingOptions shaping() const { return {.gamma = gamma(), .side = used_side(), .polar = polar()}; }

 protected:
  bool counts_steps() const override;
};

using Prism = OptimizerOf<PrismOptions>;

}  // namespace prism
