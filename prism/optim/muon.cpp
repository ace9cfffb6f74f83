#include "prism/optim/muon.h"

namespace prism {

Tensor MuonOptions::direction(const Tensor& G, State& state) const {
  MomentumState momentum{state["momentum"], state["step"]};
  return prism::polar(advance(G, momentum, *this).T, polar()).mul_(scale_factor(scale(), G.sizes()));
}

std::optional<Spectrum> MuonOptions::spectrum(const Tensor& G, const State& state) const {
  const auto [T, M] = signal(G, {state["momentum"], state["step"]}, *this);
  return prism::spectrum(T, G - M, prism::polar(T, polar()), /*gamma=*/0);
}

}  // namespace prism
