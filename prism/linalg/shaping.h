#pragma once

#include "prism/linalg/polar.h"

namespace prism {

// The Gram matrix that shapes the update of a matrix (m, n).
//   Left, Right  m × m, n × n
//   Both         one of each
//   Short        the shorter side, right when square
//   Long         the other one: the longer side, left when square
//   Inputs       right, but left if n > 4m, where an n × n matrix would cost far more than the momentum itself
//   Balanced     the shorter side. For a wide matrix, n > m, γ is multiplied by √(m/n), so that noise of equal strength
//                in all directions is damped as on the right side, where it is spread over n directions instead of m
//   Whitened     as Inputs, but a matrix with m < n ≤ 4m is shaped on its short side, in coordinates in which the noise is
//                white
enum class Side { Short, Left, Right, Both, Long, Inputs, Balanced, Whitened };

struct ShapingOptions {
  double gamma = 1;  // γ ≥ 0: the strength of the damping by noise
  Side side = Side::Short;
  PolarOptions polar;
};

// PRISM's spectral shaping (Yang 2025, "Innovation-Augmented Polar Decomposition") of each matrix of T (…, m, n), the
// momentum, by D (…, m, n), the innovation (gradient − momentum):
//   right   O = T (TᵀT + γ²DᵀD)^(−1/2)                           the top block of polar([T; γD])
//   left    O = (TTᵀ + γ²DDᵀ)^(−1/2) T
//   both    O = L^(−1/4) T R^(−1/4),  L = TTᵀ + γ²DDᵀ,  R = TᵀT + γ²DᵀD
//           (not in the paper; Gram and Exact solvers, Gram by inverse_root, whose own polynomials replace the
//           coefficient set)
// Along an eigenvector v of the Gram matrix, ‖Ov‖ = (1 + γ²/SNR²)^(−1/2) with SNR = ‖Tv‖/‖Dv‖. With γ = 0 all sides
// give polar(T) and D is not read. The Gram solver never builds the stacked matrix, but uses its 2m×2m Gram matrix if
// the chosen side is more than twice the other. Zero matrices give zero. Same shape and type as T.
Tensor shape_momentum(const Tensor& T, const Tensor& D, const ShapingOptions& options = {});

// An estimate of the innovation's covariance DᵀD: scale²·C with C (…, n, n) and scale (…, 1, 1), a power of two that
// keeps C in range.
struct Covariance {
  Tensor C, scale;
};

// The same with DᵀD replaced by `right` and DDᵀ by `left`. Only the covariances that the side needs must be defined.
// Gram and Exact solvers.
Tensor shape_with_covariance(const Tensor& T, const Covariance& left, const Covariance& right,
                             const ShapingOptions& options);

// The root Ĉ^(−1/2) of a covariance, by the iteration or solver of the options. The result R stands for R.C/R.scale.
Covariance whitening_root(const Covariance& covariance, const PolarOptions& options);

// The momentum in coordinates in which the noise is white: X = T Ĉ^(−1/2).
Tensor whitened(const Tensor& T, const Covariance& root);

// Side `Whitened`, for matrices wider than high:
//   O = (XXᵀ + γ²I)^(−1/2) X,  X = T Ĉ^(−1/2)
// The singular values of X are signal-to-noise ratios, and each is damped to (1 + γ²/SNR²)^(−1/2), as on the right side
// along the eigenvectors there. The two agree where noise dominates, O ≈ T (γ²Ĉ)^(−1/2), and for white noise. Here the
// iteration works on m × m matrices, and Ĉ^(−1/2), which changes slowly, need not be computed at every step. `factor`
// (…, 1, 1) multiplies γ; undefined: 1.
Tensor shape_whitened(const Tensor& X, const Tensor& factor, const ShapingOptions& options);

// The covariance of white noise with the standard deviation `factor` (undefined: 1), for the left side of X.
Covariance white_noise(const Tensor& X, const Tensor& factor);

// Uniform damping: O = T (TᵀT + δI)^(−1/2), δ = damping · mean of the σ_i². Gram and Exact solvers.
Tensor shape_tikhonov(const Tensor& T, double damping, const PolarOptions& options = {});

// The same with a given λ ≥ 0: O = T (TᵀT + λI)^(−1/2). Not invariant to the scale of T.
Tensor shape_tikhonov_absolute(const Tensor& T, double lambda, const PolarOptions& options = {});

// The side that Short, Long, Inputs, Balanced and Whitened stand for, and the factor of γ there: 1 except for Balanced.
// For m < n ≤ 4m Whitened stays.
Side resolved_side(Side side, int64_t m, int64_t n);
double gamma_factor(Side side, int64_t m, int64_t n);

}  // namespace prism
