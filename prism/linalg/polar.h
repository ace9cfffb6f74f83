#pragma once

#include "prism/linalg/batch.h"
#include "prism/linalg/coefficients.h"
#include "prism/linalg/gram.h"

namespace prism {

// The method that computes a spectral function.
//   Gram     Newton-Schulz on the n×n (or m×m) Gram matrix, whichever is smaller; float32 or float64
//   Stacked  Newton-Schulz on the matrix itself, as in Muon, in the type of the input (bfloat16 included)
//   Exact    float64 SVD or eigh; zero singular values map to zero
enum class Solver { Gram, Stacked, Exact };

struct PolarOptions {
  Solver solver = Solver::Gram;
  Coefficients coefficients = "jordan";
};

// The orthogonal polar factor of each matrix of X (…, m, n): polar(X) = UVᵀ = X(XᵀX)^(−1/2) for X = UΣVᵀ, zero for
// X = 0. Scale-invariant: X is divided by a power of two first, and no eps is added anywhere. Same shape and type as X.
Tensor polar(const Tensor& X, const PolarOptions& options = {});

// The nuclear norm Σσ_i of each matrix, shape (…, 1, 1), as the inner product of X with its polar factor.
Tensor nuclear_norm(const Tensor& X, const Tensor& polar_factor);

// The literal iteration: X ← X·q_k(XᵀX) for each step. The singular values of X must be at most 1/bound.
Tensor newton_schulz(Tensor X, const Coefficients& coefficients);

}  // namespace prism
