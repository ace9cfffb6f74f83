#pragma once

// Small helpers shared by the routines of linalg: every one of them works on a batch, shape (…, m, n).

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

namespace prism {

using at::Tensor;

// Refuses what is not a floating-point matrix or a batch of them.
void check_matrix(const char* who, const Tensor& X);

// The type to compute in: float64 stays, everything narrower becomes float32.
at::ScalarType compute_type(const Tensor& X);

// The distance from 1 to the next number of float64 or float32.
double rounding_unit(at::ScalarType type);

// ½(A + Aᵀ).
Tensor symmetrised(const Tensor& A);

// max |x| of each matrix in float64, shape (…, 1, 1); 0 for empty matrices.
Tensor largest_magnitude(const Tensor& X);

// The power of two nearest to x > 0 (any power of two for x = 0), kept to the normal numbers of `type` (float32 for
// narrower types), so that dividing by it is exact. Dividing T and γD by it before their Gram lets 1e30 and 1e-30
// neither overflow nor vanish.
Tensor nearest_power_of_two(const Tensor& x, at::ScalarType type);

// The power of two to divide by before a Gram: as above, but 1 for a batch on the host whose squares are far from the
// limits of its type. There looking costs nothing, a division would cost a copy, and powers of two change no other bit.
Tensor gram_scale(const Tensor& magnitude, at::ScalarType type);

// X as `type`, divided by such a power of two; X itself where nothing changes.
Tensor divided(const Tensor& X, const Tensor& scale, at::ScalarType type);

// x with its zeros replaced by 1: a divisor that leaves zero matrices zero.
Tensor nonzero_or_one(const Tensor& x);

}  // namespace prism
