#include "prism/optim/tikhonov_muon.h"

#include <cmath>

#include "prism/optim/option_types.h"

namespace prism {

Tensor TikhonovMuonOptions::direction(const Tensor& G, State& state) const {
  MomentumState momentum{state["momentum"], state["step"]};
  return shape_tikhonov(advance(G, momentum, *this).T, damping(), polar()).mul_(scale_factor(scale(), G.sizes()));
}

void TikhonovMuonOptions::check() const {
  MomentumOptionsOf::check();
  TORCH_CHECK_VALUE(std::isfinite(damping()) && damping() >= 0, name(), ": damping must be 0 or more, got ", damping());
  TORCH_CHECK_VALUE(solver() != Solver::Stacked, name(),
                    ": solver 'stacked' is not available here; use 'gram' or 'exact'");
}

std::vector<Option> TikhonovMuonOptions::table() {
  return MomentumOptionsOf::table() +
         std::vector<Option>{option("damping", damping_, "δ relative to the mean of the squared singular values")};
}

}  // namespace prism
