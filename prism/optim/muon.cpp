#include "prism/optim/muon.h"

#include "prism/linalg/shaping.h"
#include "prism/optim/kernel_rule.h"

namespace prism {

Tensor MuonOptions::direction(const Operands& operands, State& state) const {
  return finish(prism::polar(operands.T, polar()), state);
}

std::optional<Spectrum> MuonOptions::spectrum(const Tensor& G, const State& state) const {
  const auto [T, M] = signal(G, momentum_state(state), rule());
  return prism::spectrum(T, G - M, prism::polar(T, polar()), /*gamma=*/0);
}

std::unique_ptr<KernelRule> MuonOptions::kernel_rule() const { return momentum_kernel(rule(), polar()); }

Tensor TikhonovMuonOptions::direction(const Operands& operands, State& state) const {
  return finish(damping_absolute() > 0 ? shape_tikhonov_absolute(operands.T, damping_absolute(), polar())
                                       : shape_tikhonov(operands.T, damping(), polar()),
                state);
}

std::unique_ptr<KernelRule> TikhonovMuonOptions::kernel_rule() const {
  auto kernel = damping_absolute() > 0 ? nullptr : momentum_kernel(rule(), polar());
  if (kernel != nullptr) std::get<SpectralKernel>(*kernel).rule.damping = damping();
  return kernel;
}

void TikhonovMuonOptions::check() const {
  MomentumOptions::check();
  static const TikhonovMuonOptions defaults;
  TORCH_CHECK_VALUE(damping_absolute() == 0 || damping() == defaults.damping(), name(),
                    ": expected damping or damping_absolute, got both (", damping(), " and ", damping_absolute(),
                    "); leave one out");
  TORCH_CHECK_VALUE(solver() != Solver::Stacked, name(),
                    ": solver 'stacked' is not available here; use 'gram' or 'exact'");
}

}  // namespace prism
