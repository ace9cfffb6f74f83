#pragma once

#include "prism/linalg/batch.h"

namespace prism {

//   Coupled  matrix products only, roots 2 and 4: P ← P·h(A), A ← A·h(A)^r with h = a + bA + cA²
//            (constants: coefficients.h)
//   Eigh     float64 eigendecomposition, any root
enum class RootMethod { Coupled, Eigh };

struct RootOptions {
  RootMethod method = RootMethod::Coupled;
  int64_t steps = 12;  // of the coupled iteration: enough for every eigenvalue that float32 can tell from zero
};

// A^(−1/r) for symmetric positive semidefinite A (…, n, n). What lies in the null space is never amplified without
// bound:
//   Eigh     eigenvalues at or below 32ε·λ_max count as zero and map to zero (the pseudo-inverse root)
//   Coupled  eigenvalues are lifted by 32ε·‖A‖_F, so that those near zero act like the smallest that rounding
//            can tell from zero
// with ε that of the type computed in. A sum of ten thousand GᵀG in float32 has shown eigenvalues down to −21ε·‖A‖_F,
// an average −1ε. Zero matrices give zero (Eigh) or a multiple of I (Coupled). Scale-invariant:
// (s·A)^(−1/r) = s^(−1/r)·A^(−1/r) for any s.
Tensor inverse_root(const Tensor& A, int64_t r, const RootOptions& options = {});

}  // namespace prism
