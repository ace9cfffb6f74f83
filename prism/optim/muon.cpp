#include "prism/optim/muon.h"

namespace prism {

Tensor MuonOptions::direction(const Tensor& G, State& state) const {
  MomentumState momentum = momentum_state(state);
  return finished(prism::polar(advance(G, momentum, *this).T, polar()), momentum, *this);
}

std::optional<Spectrum> MuonOptions::spectrum(const Tensor& G, const State& state) const {
  const auto [T, M] = signal(G, momentum_state(state), *this);
  return prism::spectrum(T, G - M, prism::polar(T, polar()), /*gamma=*/0);
}

}  // namespace prism
