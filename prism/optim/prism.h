#pragma once

#include "prism/linalg/sketch.h"
#include "prism/optim/optimizer.h"
#include "prism/optim/spectral.h"

namespace prism {

// The covariance of the innovation that PRISM damps with.
//   Instant  DᵀD of this step (the paper)
//   Ema      a dense average over steps, Ĉ ← β₂Ĉ + (1−β₂)DᵀD, bias-corrected
//   Sketch   a low-rank stream of that average (sketch.h)
// With covariance_every = k the two averages are refreshed at the steps 1, 1 + k, 1 + 2k, … of a parameter, by
// Ĉ ← β₂ᵏĈ + (1−β₂ᵏ)DᵀD, bias-corrected by the steps covered: 1 − β₂^(k·refreshes). Between refreshes D is not formed.
enum class CovarianceKind { Instant, Ema, Sketch };

// PRISM (Yang 2025, Algorithm 1): Muon with the innovation D = G − M in the denominator. For each matrix (m, n)
//   M ← βM + (1−β)G;   D = G − M;   T = M, or (1−β)G + βM with Nesterov
//   O = T (TᵀT + γ²DᵀD)^(−1/2)                 right; left and both sides: shaping.h
//   W ← (1 − lr·λ)W − lr·scale(m, n)·O
// The paper stacks M and does not say how Nesterov enters; T here is our reading. On step 1 the zero-started momentum
// damps the update by 1/√(1 + (γβ/(1−β))²), 0.0526 for the paper's values (0.1021 with Nesterov); `bias_correction`
// makes step 1 Muon's.
class PrismOptions : public MomentumOptionsOf<PrismOptions> {
 public:
  PrismOptions(double lr = 0.02) : MomentumOptionsOf(lr, /*weight_decay=*/0) {}  // NOLINT: as torch's options

  PRISM_OPTION(PrismOptions, double, gamma, = 1);        // γ ≥ 0: how much the noise damps; 0 is Muon
  PRISM_OPTION(PrismOptions, Schedule, gamma_schedule);  // γ_t = γ · gamma_schedule(t)
  PRISM_OPTION(PrismOptions, Side, side, = Side::Auto);  // whose Gram matrix shapes
  PRISM_OPTION(PrismOptions, CovarianceKind, covariance, = CovarianceKind::Instant);
  PRISM_OPTION(PrismOptions, double, covariance_beta, = 0.99);  // β₂ of ema and sketch
  PRISM_OPTION(PrismOptions, int64_t, covariance_every, = 1);   // k: steps from refresh to refresh of ema and sketch
  PRISM_OPTION(PrismOptions, int64_t, rank, = 64);  // of the sketch; above a matrix's side it is that side: dense

 public:
  std::string name() const override { return "prism"; }
  std::vector<Field> fields(at::IntArrayRef shape) const override;
  Tensor direction(const Tensor& G, State& state) const override;
  std::optional<Spectrum> spectrum(const Tensor& G, const State& state) const override;
  void check() const override;
  bool can_be_captured() const override;
  std::vector<Option> table() override;
  ShapingOptions shaping() const { return {.gamma = gamma(), .side = side(), .polar = polar()}; }

 protected:
  bool counts_steps() const override;
};

// The covariance state of one side: the pair that `covariance` names is defined, the other is not.
struct NoiseState {
  Covariance average;
  Sketch sketch;
};

struct PrismState : MomentumState {
  NoiseState left, right;
};

Tensor prism_direction(const Tensor& G, PrismState& state, const PrismOptions& options);

class Prism : public OptimizerOf<PrismOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace prism
