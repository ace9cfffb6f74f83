#include "prism/optim/rmsprop.h"

#include "prism/optim/option_types.h"

namespace prism {

std::vector<Field> RMSpropOptions::fields(at::IntArrayRef shape) const {
  std::vector<Field> list = {{"square_avg", shape.vec()}};
  if (centered()) list.push_back({"grad_avg", shape.vec()});
  if (momentum() > 0) list.push_back({"momentum_buffer", shape.vec()});
  return list;
}

Tensor RMSpropOptions::direction(const Tensor& G, State& state) const {
  Tensor v = state["square_avg"].mul_(alpha()).addcmul_(G, G, 1 - alpha());
  if (centered()) {
    const Tensor g = state["grad_avg"].lerp_(G, 1 - alpha());
    v = v.addcmul(g, g, -1).clamp_min_(0);  // rounding may take it below zero
  }
  const Tensor X = G / v.sqrt().add_(eps());
  return momentum() > 0 ? state["momentum_buffer"].mul_(momentum()).add_(X) : X;
}

void RMSpropOptions::check() const {
  Options::check();
  TORCH_CHECK_VALUE(alpha() >= 0 && alpha() <= 1, "rmsprop: alpha must be from 0 to 1, got ", alpha());
  TORCH_CHECK_VALUE(eps() >= 0, "rmsprop: eps must be 0 or more, got ", eps());
  TORCH_CHECK_VALUE(momentum() >= 0, "rmsprop: momentum must be 0 or more, got ", momentum());
}

std::vector<Option> RMSpropOptions::table() {
  return Options::table() + std::vector<Option>{
                                option("alpha", alpha_, "α of the average of squares"),
                                option("eps", eps_, "ε added to the denominator"),
                                option("momentum", momentum_, "μ of the momentum on the scaled gradient"),
                                option("centered", centered_, "subtract the square of the average gradient"),
                            };
}

}  // namespace prism
