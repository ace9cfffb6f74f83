#include "prism/optim/adaspectral.h"

#include "prism/optim/option_types.h"

namespace prism {

Tensor ADAspectralOptions::direction(const Tensor& G, State& state) const {
  return scaled_sharp(G, state["sum"].addcmul_(G, G), eps(), polar());
}

void ADAspectralOptions::check() const {
  SpectralOptionsOf::check();
  TORCH_CHECK_VALUE(eps() > 0, "adaspectral: eps must be more than 0, got ", eps());
}

std::vector<Option> ADAspectralOptions::table() {
  return SpectralOptionsOf::table() + std::vector<Option>{option("eps", eps_, "ε added to √v")};
}

}  // namespace prism
