#include "prism/linalg/shaping.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "prism/linalg/product.h"
#include "prism/linalg/roots.h"
#include "prism/linalg/scratch.h"

namespace prism {
namespace {

at::ScalarType working_type(const Tensor& T, Solver solver) {
  if (solver == Solver::Exact) return at::kDouble;
  return solver == Solver::Gram ? compute_type(T) : T.scalar_type();
}

// R^(−1/root) of a Gram matrix.
Tensor inverse_power(const Tensor& R, int64_t root, const PolarOptions& options) {
  if (options.solver == Solver::Exact) return inverse_root(R, root, {.method = RootMethod::Eigh});
  if (root != 2) return inverse_root(R, root);
  const Tensor size = gram_size(R, options.coefficients);
  return gram_iteration(scratch_copy(R).div_(size), options.coefficients).div_(size.sqrt());
}

Tensor gram(const Tensor& T, const Tensor& N) {  // TᵀT + NᵀN
  Tensor R = symmetric_product(T.mT(), T);
  return N.defined() ? R.add_(symmetric_product(N.mT(), N)) : R;
}

// T (TᵀT + NᵀN)^(−1/root).
Tensor right_power(const Tensor& T, const Tensor& N, int64_t root, const PolarOptions& options) {
  const int64_t m = T.size(-2);
  if (N.defined() && T.size(-1) > 2 * m) {  // the top block of (SSᵀ)^(−1/root) S, S = [T; N]
    const Tensor S = at::cat({T, N}, -2);
    return product(inverse_power(gram(S.mT(), Tensor()), root, options).narrow(-2, 0, m), S);
  }
  return product(T, inverse_power(gram(T, N), root, options));
}

// X / (bound·‖X‖). Forms the Gram matrix only if the norm needs it.
Tensor starting_point(const Tensor& X, const Coefficients& set) {
  if (set.norm() != Norm::Frobenius) return X / gram_size(X.mT().matmul(X), set).sqrt();
  return X / (nonzero_or_one(at::linalg_vector_norm(X, 2, {-2, -1}, /*keepdim=*/true)) * set.bound());
}

// The top block of the polar factor of S = [T; N], by the literal iteration or by the SVD.
Tensor stacked_polar(const Tensor& T, const Tensor& N, const PolarOptions& options) {
  const Tensor S = N.defined() ? at::cat({T, N}, -2) : T;
  const int64_t m = T.size(-2);
  if (options.solver == Solver::Exact) {
    const auto [U, sigma, Vh] = thin_svd(S);
    const double eps = std::numeric_limits<double>::epsilon() * static_cast<double>(std::max(S.size(-1), S.size(-2)));
    const Tensor kept = sigma.gt(sigma.amax(-1, true) * eps).to(S.scalar_type());
    return U.narrow(-2, 0, m).mul(kept.unsqueeze(-2)).matmul(Vh);
  }
  const bool tall = S.size(-2) >= S.size(-1);
  const Tensor X = starting_point(tall ? S : S.mT(), options.coefficients);
  const Tensor O = newton_schulz(X, options.coefficients);
  return (tall ? O : O.mT()).narrow(-2, 0, m);
}

Tensor shape_right(const Tensor& T, const Tensor& N, const PolarOptions& options) {
  return options.solver == Solver::Gram ? right_power(T, N, 2, options) : stacked_polar(T, N, options);
}

// L^(−1/4) T R^(−1/4). The shorter side comes last: its Gram matrix is small, and the longer side may use the 2m×2m
// form.
Tensor shape_both(const Tensor& T, const Tensor& N, const PolarOptions& options) {
  if (T.size(-2) > T.size(-1)) return shape_both(T.mT(), N.mT(), options).mT();
  const Tensor L = inverse_power(gram(T.mT(), N.mT()), 4, options);
  return L.matmul(right_power(T, N, 4, options));
}

// C with its negative eigenvalues set to 0. They come only from rounding, but one that cancels TᵀT would let
// T (TᵀT + γ²C)^(−1/2) exceed its bound of 1.
Tensor positive_part(const Tensor& C) {
  const auto [lambda, V] = eigh(C);
  return V.mul(lambda.clamp_min(0).unsqueeze(-2)).matmul(V.mT());
}

void check_gamma(const char* who, double gamma) {
  TORCH_CHECK_VALUE(std::isfinite(gamma) && gamma >= 0, who, ": gamma must be finite and 0 or more, got ", gamma);
}

void check_no_stack(const char* who, Solver solver) {
  TORCH_CHECK_VALUE(solver != Solver::Stacked, who,
                    ": solver 'stacked' needs the innovation itself; use 'gram' or 'exact'");
}

void check_tikhonov(const char* who, const Tensor& T, double damping, Solver solver) {
  check_matrix(who, T);
  TORCH_CHECK_VALUE(std::isfinite(damping) && damping >= 0, who, ": damping must be finite and 0 or more, got ",
                    damping);
  check_no_stack(who, solver);
}

}  // namespace

Side resolved_side(Side side, int64_t m, int64_t n) {
  switch (side) {
    case Side::Short:
    case Side::Balanced:
      return m >= n ? Side::Right : Side::Left;
    case Side::Long:
      return m >= n ? Side::Left : Side::Right;
    case Side::Inputs:
      return n <= 4 * m ? Side::Right : Side::Left;
    case Side::Whitened:
      return n > 4 * m ? Side::Left : n > m ? Side::Whitened : Side::Right;
    default:
      return side;
  }
}

double gamma_factor(Side side, int64_t m, int64_t n) {
  return side == Side::Balanced && m < n ? std::sqrt(static_cast<double>(m) / static_cast<double>(n)) : 1;
}

Tensor shape_momentum(const Tensor& T, const Tensor& D, const ShapingOptions& options) {
  constexpr auto kWho = "shape_momentum";
  check_matrix(kWho, T);
  check_gamma(kWho, options.gamma);
  const bool noisy = options.gamma > 0;
  // Without noise every side gives the polar factor: take the cheapest.
  const Side side = resolved_side(noisy ? options.side : Side::Short, T.size(-2), T.size(-1));
  if (side == Side::Both) check_no_stack("side 'both'", options.polar.solver);
  TORCH_CHECK(!noisy || (D.defined() && D.sizes() == T.sizes()), "shape_momentum: D must have the shape of T, ",
              T.sizes(), ", got ", D.defined() ? D.sizes() : at::IntArrayRef());
  if (T.numel() == 0) return at::zeros_like(T);

  const double gamma = options.gamma * gamma_factor(options.side, T.size(-2), T.size(-1));
  const auto type = working_type(T, options.polar.solver);
  Tensor magnitude = largest_magnitude(T);
  if (noisy) magnitude = at::maximum(magnitude, largest_magnitude(D) * gamma);
  const Tensor scale = gram_scale(magnitude, type);
  const Tensor X = divided(T, scale, type);
  Tensor N = noisy ? divided(D, scale, type) : Tensor();
  if (noisy && gamma != 1) N = N * gamma;

  Tensor O;
  if (side == Side::Right) O = shape_right(X, N, options.polar);
  if (side == Side::Left) O = shape_right(X.mT(), noisy ? N.mT() : N, options.polar).mT();
  if (side == Side::Both) O = shape_both(X, N, options.polar);
  return O.to(T.scalar_type());
}

Tensor shape_with_covariance(const Tensor& T, const Covariance& left, const Covariance& right,
                             const ShapingOptions& options) {
  constexpr auto kWho = "shape_with_covariance";
  check_matrix(kWho, T);
  check_gamma(kWho, options.gamma);
  check_no_stack("covariance", options.polar.solver);
  const Side side = resolved_side(options.side, T.size(-2), T.size(-1));
  const double gamma = options.gamma * gamma_factor(options.side, T.size(-2), T.size(-1));
  const auto type = working_type(T, options.polar.solver);

  Tensor magnitude = largest_magnitude(T);
  const auto include = [&](const Covariance& covariance, int64_t n) {
    const int64_t columns = covariance.C.defined() ? covariance.C.size(-1) : 0;
    TORCH_CHECK(columns == n, "shape_with_covariance: expected a covariance of ", n, " columns, got ", columns);
    const Tensor deviation = largest_magnitude(covariance.C).sqrt() * covariance.scale.to(at::kDouble);
    magnitude = at::maximum(magnitude, deviation * gamma);
  };
  if (side != Side::Right) include(left, T.size(-2));
  if (side != Side::Left) include(right, T.size(-1));
  if (T.numel() == 0) return at::zeros_like(T);

  const Tensor scale = gram_scale(magnitude, type);
  const Tensor X = divided(T, scale, type);
  // (YᵀY + γ²Ĉ)^(−1/root) for Y = X or Xᵀ.
  const auto power = [&](const Tensor& Y, const Covariance& covariance, int64_t root) {
    // Multiply by it twice: its square may leave the range of the type if Ĉ is tiny, although the product does not.
    const Tensor noise = (covariance.scale.to(at::kDouble) * gamma).div(scale).clamp_max(1e38).to(type);
    Tensor C = covariance.C.to(type);
    if (options.polar.solver == Solver::Exact) C = positive_part(C);
    return inverse_power(gram(Y, Tensor()).add_(C.mul(noise).mul_(noise)), root, options.polar);
  };
  Tensor O;
  if (side == Side::Right) O = product(X, power(X, right, 2));
  if (side == Side::Left) O = product(power(X.mT(), left, 2), X);
  if (side == Side::Both) O = product(product(power(X.mT(), left, 4), X), power(X, right, 4));
  return O.to(T.scalar_type());
}

Covariance whitening_root(const Covariance& covariance, const PolarOptions& options) {
  check_no_stack("side 'whitened'", options.solver);
  const Tensor C = covariance.C.to(options.solver == Solver::Exact ? at::kDouble : compute_type(covariance.C));
  return {inverse_power(C, 2, options).to(covariance.C.scalar_type()), covariance.scale};
}

Tensor whitened(const Tensor& T, const Covariance& root) {
  const auto type = root.C.scalar_type();
  return product(divided(T, nonzero_or_one(root.scale.to(at::kDouble)), type), root.C);
}

Covariance white_noise(const Tensor& X, const Tensor& factor) {
  const Tensor I = at::eye(X.size(-2), X.options());
  return {factor.defined() ? I * factor.square() : I, at::ones({1, 1}, X.options())};
}

Tensor shape_whitened(const Tensor& X, const Tensor& factor, const ShapingOptions& options) {
  ShapingOptions left = options;
  left.side = Side::Left;
  return shape_with_covariance(X, white_noise(X, factor), {}, left);
}

Tensor shape_tikhonov(const Tensor& T, double damping, const PolarOptions& options) {
  check_tikhonov("shape_tikhonov", T, damping, options.solver);
  const int64_t shorter = std::min(T.size(-2), T.size(-1));
  if (T.numel() == 0) return at::zeros_like(T);
  const auto type = compute_type(T);
  const Tensor scale = nearest_power_of_two(largest_magnitude(T), type);
  const Tensor X = divided(T, scale, type);
  const Tensor mean = X.square().sum({-2, -1}, true).div_(static_cast<double>(shorter));  // of σ²
  const Covariance uniform{at::eye(shorter, X.options()) * mean, at::ones_like(scale)};
  ShapingOptions shaping{.gamma = std::sqrt(damping), .side = Side::Short, .polar = options};
  return shape_with_covariance(X, uniform, uniform, shaping).to(T.scalar_type());
}

Tensor shape_tikhonov_absolute(const Tensor& T, double lambda, const PolarOptions& options) {
  check_tikhonov("shape_tikhonov_absolute", T, lambda, options.solver);
  const auto like = T.options().dtype(compute_type(T));
  const Covariance uniform{at::eye(std::min(T.size(-2), T.size(-1)), like), at::ones({1, 1}, like)};
  return shape_with_covariance(T, uniform, uniform,
                               {.gamma = std::sqrt(lambda), .side = Side::Short, .polar = options});
}

}  // namespace prism
