#include "prism/linalg/batch.h"

#include <ATen/ops/frexp.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <limits>

namespace prism {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Returns true for each matrix that holds NaN or ∞, shape (…, 1, 1).
Tensor is_not_finite(const Tensor& X) { return X.isfinite().logical_not_().any(-1, true).any(-2, true); }

}  // namespace

void check_matrix(const char* who, const Tensor& X) {
  TORCH_CHECK(X.defined(), who, ": expected a matrix or a batch of matrices, got an undefined tensor");
  TORCH_CHECK(X.dim() >= 2, who, ": expected a matrix or a batch of matrices (…, m, n), got shape ", X.sizes());
  TORCH_CHECK(at::isFloatingType(X.scalar_type()), who, ": expected floating-point numbers, got ", X.scalar_type());
}

at::ScalarType compute_type(const Tensor& X) { return X.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

double rounding_unit(at::ScalarType type) {
  return type == at::kDouble ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
}

Tensor symmetrized(const Tensor& A) { return (A + A.mT()).mul_(0.5); }

std::tuple<Tensor, Tensor> eigh(const Tensor& A) {
  const Tensor S = symmetrized(A.to(at::kDouble));
  const Tensor bad = is_not_finite(S);
  auto [lambda, V] = at::linalg_eigh(S.masked_fill(bad, 0));
  return {lambda.masked_fill_(bad.squeeze(-1), kNaN), V.masked_fill_(bad, kNaN)};  // in place: keeps LAPACK's strides
}

std::tuple<Tensor, Tensor, Tensor> thin_svd(const Tensor& X) {
  const Tensor bad = is_not_finite(X);
  auto [U, sigma, Vh] = at::linalg_svd(X.masked_fill(bad, 0), /*full_matrices=*/false);
  return {U.masked_fill_(bad, kNaN), sigma.masked_fill_(bad.squeeze(-1), kNaN), Vh.masked_fill_(bad, kNaN)};
}

Tensor largest_magnitude(const Tensor& X) {
  if (X.size(-1) == 0 || X.size(-2) == 0) {
    auto shape = X.sizes().vec();
    shape[shape.size() - 1] = shape[shape.size() - 2] = 1;
    return at::zeros(shape, X.options().dtype(at::kDouble));
  }
  // Two reductions instead of abs().amax(): no copy of X.
  return at::maximum(X.amax({-2, -1}, true).abs(), X.amin({-2, -1}, true).abs()).to(at::kDouble);
}

Tensor nearest_power_of_two(const Tensor& x, at::ScalarType type) {
  constexpr double kSqrtHalf = 0.70710678118654752;
  const int64_t largest = type == at::kDouble ? 1022 : 126;
  const auto [mantissa, exponent] = at::frexp(x);  // x = mantissa · 2^exponent, mantissa in [½, 1)
  const Tensor nearest = exponent - mantissa.lt(kSqrtHalf).to(exponent.scalar_type());
  return nearest.clamp(-largest, largest).to(at::kDouble).exp2();
}

Tensor gram_scale(const Tensor& magnitude, at::ScalarType type) {
  constexpr double kFarFromLimits = 1e12;
  const Tensor safe =
      magnitude.eq(0).logical_or_(magnitude.lt(kFarFromLimits).logical_and_(magnitude.gt(1 / kFarFromLimits)));
  if (type != at::kHalf && magnitude.is_cpu() && safe.all().item<bool>()) return at::ones_like(magnitude);
  return nearest_power_of_two(magnitude, type);
}

Tensor divided(const Tensor& X, const Tensor& scale, at::ScalarType type) {
  if (scale.is_cpu() && scale.eq(1).all().item<bool>()) return X.to(type);
  // The scale of a large fp16 number does not fit into fp16.
  const auto wide = type == at::kDouble ? at::kDouble : at::kFloat;
  return X.to(wide).div(scale.to(wide)).to(type);
}

Tensor nonzero_or_one(const Tensor& x) { return x.masked_fill(x.eq(0), 1); }

}  // namespace prism
