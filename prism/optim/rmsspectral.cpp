#include "prism/optim/rmsspectral.h"

#include "prism/optim/option_types.h"

namespace prism {

Tensor scaled_sharp(const Tensor& G, const Tensor& v, double eps, const PolarOptions& options) {
  const Tensor d = v.sqrt().add_(eps).sqrt_();
  return sharp(G / d, options).div_(d);
}

Tensor RMSspectralOptions::direction(const Tensor& G, State& state) const {
  const Tensor v = state["square_avg"].mul_(beta()).addcmul_(G, G, 1 - beta());
  return scaled_sharp(G, v, eps(), polar());
}

void RMSspectralOptions::check() const {
  SpectralOptionsOf::check();
  TORCH_CHECK_VALUE(beta() >= 0 && beta() < 1, "rmsspectral: beta must be from 0 to below 1, got ", beta());
  TORCH_CHECK_VALUE(eps() > 0, "rmsspectral: eps must be more than 0, got ", eps());
}

std::vector<Option> RMSspectralOptions::table() {
  return SpectralOptionsOf::table() + std::vector<Option>{
                                          option("beta", beta_, "β of the average of squares"),
                                          option("eps", eps_, "ε added to √v"),
                                      };
}

}  // namespace prism
