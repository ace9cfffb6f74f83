#include "prism/optim/tikhonov_muon.h"

#include <cmath>

#include "prism/optim/option_types.h"

namespace prism {

Tensor TikhonovMuonOptions::direction(const Tensor& G, State& state) const {
  MomentumState momentum = momentum_state(state);
  const Tensor T = advance(G, momentum, *this).T;
  return finished(damping_absolute() > 0 ? shape_tikhonov_absolute(T, damping_absolute(), polar())
                                         : shape_tikhonov(T, damping(), polar()),
                  momentum, *this);
}

void TikhonovMuonOptions::check() const {
  MomentumOptionsOf::check();
  TORCH_CHECK_VALUE(std::isfinite(damping()) && damping() >= 0, name(), ": damping must be 0 or more, got ", damping());
  TORCH_CHECK_VALUE(std::isfinite(damping_absolute()) && damping_absolute() >= 0, name(),
                    ": damping_absolute must be 0 or more, got ", damping_absolute());
  TORCH_CHECK_VALUE(damping_absolute() == 0 || damping() == kDefaultDamping, name(),
                    ": expected damping or damping_absolute, got both (", damping(), " and ", damping_absolute(),
                    "); leave one out");
  TORCH_CHECK_VALUE(solver() != Solver::Stacked, name(),
                    ": solver 'stacked' is not available here; use 'gram' or 'exact'");
}

bool TikhonovMuonOptions::can_be_captured() const {
  return MomentumOptionsOf::can_be_captured() && damping_absolute() == 0;
}

std::vector<Option> TikhonovMuonOptions::table() {
  return MomentumOptionsOf::table() +
         std::vector<Option>{
             option("damping", damping_, "δ relative to the mean of the squared singular values"),
             option("damping_absolute", damping_absolute_, "λ of TᵀT + λI itself, in place of damping; 0: damping")};
}

}  // namespace prism
