#pragma once

// Small helpers shared by the routines of linalg. Each works on a batch of shape (…, m, n).

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <tuple>

namespace prism {

using at::Tensor;

// Throws unless X is a floating-point matrix or a batch of them.
void check_matrix(const char* who, const Tensor& X);

// The type to compute in: float64 stays, everything narrower becomes float32.
at::ScalarType compute_type(const Tensor& X);

// The distance from 1 to the next number of float64 or float32.
double rounding_unit(at::ScalarType type);

// ½(A + Aᵀ).
Tensor symmetrized(const Tensor& A);

// The eigenvalues of ½(A + Aᵀ), ascending, and its eigenvectors, in float64. Both are NaN for a matrix that holds NaN or
// ∞, where torch's eigh throws: like any other operation, it must not stop at what a gradient holds.
std::tuple<Tensor, Tensor> eigh(const Tensor& A);

// The thin singular value decomposition X = UΣVᵀ as U, the diagonal of Σ and Vᵀ; NaN likewise.
std::tuple<Tensor, Tensor, Tensor> thin_svd(const Tensor& X);

// max |x| of each matrix in float64, shape (…, 1, 1); 0 for empty matrices.
Tensor largest_magnitude(const Tensor& X);

// The power of two nearest to x > 0 (any power of two for x = 0), limited to the normal numbers of `type` (float32 for
// narrower types), so that dividing by it is exact. T and γD are divided by it before their Gram matrix is formed, so
// that 1e30 does not overflow and 1e-30 does not vanish.
Tensor nearest_power_of_two(const Tensor& x, at::ScalarType type);

// The power of two to divide by before a Gram matrix is formed: as above, but 1 for a batch on the host whose squares
// are far from the limits of its type. On the host the check is free, a division would cost a copy, and a power of two
// changes no other bit.
Tensor gram_scale(const Tensor& magnitude, at::ScalarType type);

// X as `type`, divided by such a power of two; X itself if nothing changes.
Tensor divided(const Tensor& X, const Tensor& scale, at::ScalarType type);

// x with its zeros replaced by 1: a divisor that leaves zero matrices zero.
Tensor nonzero_or_one(const Tensor& x);

}  // namespace prism
