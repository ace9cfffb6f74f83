#include "prism/optim/ssd.h"

namespace prism {

Tensor sharp(const Tensor& X, const PolarOptions& options) {
  const Tensor UV = polar(X, options);
  return nuclear_norm(X, UV) * UV;
}

Tensor SSDOptions::direction(const Tensor& G, State& /*state*/) const { return sharp(G, polar()); }

}  // namespace prism
