#pragma once

#include "prism/linalg/batch.h"

namespace prism {

//   Coupled  matrix products only, roots 2 and 4: P ← P·h(A), A ← A·h(A)^r with h = a + bA + cA² (constants: coefficients.h)
//   Eigh     float64 eigendecomposition, any root
enum class RootMethod { Coupled, Eigh };

struct RootOptions {
  RootMethod method = RootMethod::Coupled;
  int64_t steps = 12;  // of the coupled iteration: exact in float32 for eigenvalues down to 1e-6 of the largest
};

// A^(−1/r) for symmetric positive semidefinite A (…, n, n). What lies in the null space is never amplified without bound:
//   Eigh     eigenvalues at or below n·ε·λ_max count as zero and map to zero (the pseudo-inverse root)
//   Coupled  eigenvalues are lifted by 4√n·ε·‖A‖_F, so that those near zero act like the smallest that rounding can tell from zero
// Zero matrices give zero (Eigh) or a multiple of I (Coupled). Scale-invariant: (s·A)^(−1/r) = s^(−1/r)·A^(−1/r) for any s.
Tensor inverse_root(const Tensor& A, int64_t r, const RootOptions& options = {});

}  // namespace prism
