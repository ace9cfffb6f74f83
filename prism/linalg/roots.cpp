#include "prism/linalg/roots.h"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <limits>

#include "prism/linalg/gram.h"
#include "prism/linalg/product.h"

namespace prism {
namespace {

constexpr double kRoundingMargin = 32;

Tensor root_by_eigh(const Tensor& A, int64_t r) {
  const auto [lambda, V] = eigh(A);
  const Tensor kept = lambda.gt(lambda.amax(-1, true) * (kRoundingMargin * rounding_unit(compute_type(A))));
  const Tensor powers =
      lambda.clamp_min(std::numeric_limits<double>::min()).pow(-1.0 / static_cast<double>(r)).mul(kept);
  return V.mul(powers.unsqueeze(-2)).matmul(V.mT()).to(A.scalar_type());
}

Tensor root_by_coupled_iteration(const Tensor& A, int64_t r, int64_t steps) {
  constexpr double kMargin = 1.001;  // the polynomials were fitted for eigenvalues up to 1/1.001
  const auto& polynomials = inverse_root_polynomials(r);
  const auto type = compute_type(A);
  const Tensor scale = nearest_power_of_two(largest_magnitude(A), type);
  Tensor R = symmetrized(divided(A, scale, type));
  // ‖A‖_F ≥ ‖A‖₂ bounds the eigenvalues.
  const Tensor norm = nonzero_or_one(at::linalg_vector_norm(R, 2, {-2, -1}, /*keepdim=*/true)).mul_(kMargin);
  R = R / norm;
  // A rounding error can make an eigenvalue negative, and it would grow by h(0)^r a step: lift all of them above zero.
  R.diagonal(0, -2, -1).add_(kRoundingMargin * rounding_unit(type));
  Tensor P;
  for (int64_t k = 0; k < steps; ++k) {
    const Tensor H = matrix_polynomial(R, polynomials[std::min<size_t>(k, polynomials.size() - 1)]);
    P = P.defined() ? symmetric_product(P, H) : H;  // polynomials in A commute: their products stay symmetric
    if (k + 1 == steps) break;
    const Tensor half = r == 2 ? H : symmetric_product(H, H);  // H^(r/2)
    R = symmetric_product(symmetric_product(half, R), half);
  }
  const Tensor factor = norm.to(at::kDouble).mul(scale).pow(-1.0 / static_cast<double>(r));
  return P.mul(factor.to(P.scalar_type())).to(A.scalar_type());
}

}  // namespace

Tensor inverse_root(const Tensor& A, int64_t r, const RootOptions& options) {
  check_matrix("inverse_root", A);
  TORCH_CHECK(A.size(-1) == A.size(-2), "inverse_root: expected square matrices, got shape ", A.sizes());
  TORCH_CHECK_VALUE(r >= 1, "inverse_root: the root must be 1 or more, got ", r);
  TORCH_CHECK_VALUE(options.steps >= 1, "inverse_root: steps must be 1 or more, got ", options.steps);
  if (A.numel() == 0) return at::zeros_like(A);
  return options.method == RootMethod::Eigh ? root_by_eigh(A, r) : root_by_coupled_iteration(A, r, options.steps);
}

}  // namespace prism
