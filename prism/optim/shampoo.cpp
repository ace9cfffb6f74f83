#include "prism/optim/shampoo.h"

#include "prism/linalg/product.h"
#include "prism/linalg/roots.h"

namespace prism {
namespace {

// C ← βC + (1−β)X, or C + X for β = 1.
Tensor accumulate(const Tensor& C, const Tensor& X, double beta) {
  return beta == 1 ? C.add_(X) : C.lerp_(X, 1 - beta);
}

}  // namespace

Tensor ShampooOptions::direction(const Operands& operands, State& state) const {
  const Tensor& G = operands.T;
  const RootOptions roots{.method = solver() == Solver::Exact ? RootMethod::Eigh : RootMethod::Coupled};
  const Tensor L = accumulate(state["L"], product(G, G.mT()), beta());
  const Tensor R = accumulate(state["R"], product(G.mT(), G), beta());
  return product(product(inverse_root(L, 4, roots), G), inverse_root(R, 4, roots));  // L^(−1/4) G R^(−1/4)
}

std::vector<Field> ShampooOptions::fields(at::IntArrayRef shape) const {
  const int64_t m = shape[shape.size() - 2];
  const int64_t n = shape[shape.size() - 1];
  return {{"L", with_matrix_shape(shape, m, m), Storage::Compute},
          {"R", with_matrix_shape(shape, n, n), Storage::Compute}};
}

void ShampooOptions::check() const {
  MatrixOptions::check();
  TORCH_CHECK_VALUE(solver() != Solver::Stacked, "shampoo: solver 'stacked' computes no roots; use 'gram' or 'exact'");
}

}  // namespace prism
