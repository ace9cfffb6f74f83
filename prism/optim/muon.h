#pragma once

#include "prism/optim/optimizer.h"
#include "prism/optim/spectral.h"

namespace prism {

// Muon (Jordan et al. 2024): spectral descent on the momentum. For each matrix (m, n)
//   M ← βM + (1−β)G;   T = M, or (1−β)G + βM with Nesterov;   W ← (1 − lr·λ)W − lr·scale(m, n)·polar(T)
// The same as Prism with γ = 0, bit for bit.
class MuonOptions : public MomentumOptions<MuonOptions> {
 public:
  MuonOptions(double lr = 0.02) : MomentumOptions(lr, /*weight_decay=*/0) {}

  std::string name() const override { return "muon"; }
  Tensor direction(const Operands& operands, State& state) const override;
  std::optional<Spectrum> spectrum(const Tensor& G, const State& state) const override;
  std::unique_ptr<KernelRule> kernel_rule() const override;
};

using Muon = OptimizerOf<MuonOptions>;

// Muon with uniform damping, the paper's ablation ("The Necessity of Anisotropic Shaping"): for each matrix (m, n)
//   M ← βM + (1−β)G;   T as Muon;   W ← (1 − lr·λ)W − lr·scale(m, n)·T (TᵀT + δI)^(−1/2);
//   δ = damping · mean of T's σ_i², or damping_absolute
// The paper's λI is absolute, and the paper gives no value for λ. The relative form means the same for every matrix and
// at every step.
class TikhonovMuonOptions : public MomentumOptions<TikhonovMuonOptions> {
 public:
  TikhonovMuonOptions(double lr = 0.02) : MomentumOptions(lr, /*weight_decay=*/0) {}

  PRISM_OPTION(double, damping, 1, kNotNegative, "δ relative to the mean of the squared singular values");
  PRISM_OPTION(double, damping_absolute, 0, kNotNegative, "λ in TᵀT + λI, used instead of damping; 0: use damping");

 public:
  std::string name() const override { return "tikhonovmuon"; }
  Tensor direction(const Operands& operands, State& state) const override;
  std::unique_ptr<KernelRule> kernel_rule() const override;
  void check() const override;
};

using TikhonovMuon = OptimizerOf<TikhonovMuonOptions>;

}  // namespace prism
