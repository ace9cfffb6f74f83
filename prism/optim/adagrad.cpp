#include "prism/optim/adagrad.h"

#include "prism/optim/matrix.h"
#include "prism/optim/option_types.h"

namespace prism {

std::vector<Field> AdaGradOptions::fields(at::IntArrayRef shape) const {
  return {{"step", {}, Storage::Counter}, {"sum", shape.vec(), Storage::State, initial_accumulator_value()}};
}

Tensor AdaGradOptions::direction(const Tensor& G, State& state) const {
  const Tensor step = state["step"].add_(1);
  const Tensor sum = state["sum"].addcmul_(G, G);
  const Tensor decay = (per_entry(step, G).to(at::kDouble) - 1) * lr_decay() + 1;
  return G / (sum.sqrt().add_(eps())) / decay.to(G.scalar_type());
}

void AdaGradOptions::check() const {
  Options::check();
  TORCH_CHECK_VALUE(lr_decay() >= 0, "adagrad: lr_decay must be 0 or more, got ", lr_decay());
  TORCH_CHECK_VALUE(initial_accumulator_value() >= 0, "adagrad: initial_accumulator_value must be 0 or more, got ",
                    initial_accumulator_value());
  TORCH_CHECK_VALUE(eps() >= 0, "adagrad: eps must be 0 or more, got ", eps());
}

std::vector<Option> AdaGradOptions::table() {
  return Options::table() +
         std::vector<Option>{
             option("lr_decay", lr_decay_, "the update is divided by 1 + (t−1)·lr_decay"),
             option("initial_accumulator_value", initial_accumulator_value_, "what the sum of squares starts from"),
             option("eps", eps_, "ε added to the denominator"),
         };
}

}  // namespace prism
