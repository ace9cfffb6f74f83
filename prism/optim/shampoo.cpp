#include "prism/optim/shampoo.h"

#include <ATen/ops/matmul.h>

#include "prism/optim/option_types.h"

namespace prism {

void accumulate(Tensor& C, const Tensor& X, double beta) {
  if (beta == 1) {
    C.add_(X);
  } else {
    C.lerp_(X, 1 - beta);
  }
}

Tensor shampoo_direction(const Tensor& G, ShampooState& state, const ShampooOptions& options) {
  const RootOptions roots{.method = options.solver() == Solver::Exact ? RootMethod::Eigh : RootMethod::Coupled};
  accumulate(state.L, G.matmul(G.mT()), options.beta());
  accumulate(state.R, G.mT().matmul(G), options.beta());
  return inverse_root(state.L, 4, roots).matmul(G).matmul(inverse_root(state.R, 4, roots));  // L^(−1/4) G R^(−1/4)
}

std::vector<Field> ShampooOptions::fields(at::IntArrayRef shape) const {
  const int64_t m = shape[shape.size() - 2];
  const int64_t n = shape[shape.size() - 1];
  return {{"L", with_matrix_shape(shape, m, m), Storage::Compute},
          {"R", with_matrix_shape(shape, n, n), Storage::Compute}};
}

Tensor ShampooOptions::direction(const Tensor& G, State& state) const {
  ShampooState shampoo{state["L"], state["R"]};
  return shampoo_direction(G, shampoo, *this);
}

void ShampooOptions::check() const {
  MatrixOptionsOf::check();
  TORCH_CHECK_VALUE(beta() >= 0 && beta() <= 1, "shampoo: beta must be from 0 to 1 (1 is a sum), got ", beta());
  TORCH_CHECK_VALUE(solver() != Solver::Stacked, "shampoo: solver 'stacked' computes no roots; use 'gram' or 'exact'");
}

std::vector<Option> ShampooOptions::table() {
  return MatrixOptionsOf::table() +
         std::vector<Option>{
             option("beta", beta_, "β of the averages L and R; 1 is the paper's sum"),
             option("solver", solver_, "of the fourth roots: gram is the coupled iteration, exact is eigh"),
         };
}

}  // namespace prism
