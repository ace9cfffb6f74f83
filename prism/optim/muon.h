#pragma once

#include "prism/optim/optimizer.h"
#include "prism/optim/spectral.h"

namespace prism {

// Muon (Jordan et al. 2024): spectral descent on the momentum. For each matrix (m, n)
//   M ← βM + (1−β)G;   T = M, or (1−β)G + βM with Nesterov;   W ← (1 − lr·λ)W − lr·scale(m, n)·polar(T)
// The same as Prism with γ = 0, bit for bit.
class MuonOptions : public MomentumOptionsOf<MuonOptions> {
 public:
  MuonOptions(double lr = 0.02) : MomentumOptionsOf(lr, /*weight_decay=*/0) {}  // NOLINT: as torch's options

  std::string name() const override { return "muon"; }
  Tensor direction(const Tensor& G, State& state) const override;
  std::optional<Spectrum> spectrum(const Tensor& G, const State& state) const override;
};

class Muon : public OptimizerOf<MuonOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace prism
