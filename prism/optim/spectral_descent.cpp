#include "prism/optim/spectral_descent.h"

namespace prism {
namespace {

// sharp(G/d)/d with d = √(√v + ε).
Tensor scaled_sharp(const Tensor& G, const Tensor& v, double eps, const PolarOptions& options) {
  const Tensor d = v.sqrt().add_(eps).sqrt_();
  return sharp(G / d, options).div_(d);
}

}  // namespace

Tensor sharp(const Tensor& X, const PolarOptions& options) {
  const Tensor UV = polar(X, options);
  return nuclear_norm(X, UV) * UV;
}

Tensor SSDOptions::direction(const Operands& operands, State& /*state*/) const { return sharp(operands.T, polar()); }

Tensor RMSspectralOptions::direction(const Operands& operands, State& state) const {
  const Tensor& G = operands.T;
  const Tensor v = state["square_avg"].mul_(beta()).addcmul_(G, G, 1 - beta());
  return scaled_sharp(G, v, eps(), polar());
}

Tensor ADAspectralOptions::direction(const Operands& operands, State& state) const {
  const Tensor& G = operands.T;
  return scaled_sharp(G, state["sum"].addcmul_(G, G), eps(), polar());
}

}  // namespace prism
