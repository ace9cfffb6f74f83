#pragma once

#include "prism/optim/optimizer.h"
#include "prism/optim/spectral.h"

namespace prism {

// Muon with uniform damping, the paper's ablation ("The Necessity of Anisotropic Shaping"): for each matrix (m, n)
//   M ← βM + (1−β)G;   T as Muon;   W ← (1 − lr·λ)W − lr·scale(m, n)·T (TᵀT + δI)^(−1/2);
//   δ = damping · mean of T's σ_i², or damping_absolute
// The paper's λI is absolute and it gives no value; the relative form means the same for every matrix and at every
// step.
class TikhonovMuonOptions : public MomentumOptionsOf<TikhonovMuonOptions> {
 public:
  TikhonovMuonOptions(double lr = 0.02) : MomentumOptionsOf(lr, /*weight_decay=*/0) {}  // NOLINT: as torch's options

  PRISM_OPTION(TikhonovMuonOptions, double, damping, = kDefaultDamping);
  PRISM_OPTION(TikhonovMuonOptions, double, damping_absolute, = 0);  // λ in place of damping; 0: damping

 public:
  std::string name() const override { return "tikhonovmuon"; }
  Tensor direction(const Tensor& G, State& state) const override;
  void check() const override;
  bool can_be_captured() const override;
  std::vector<Option> table() override;

 private:
  static constexpr double kDefaultDamping = 1;
};

class TikhonovMuon : public OptimizerOf<TikhonovMuonOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace prism
