#pragma once

#include "prism/linalg/batch.h"

namespace prism {

// The method that computes inverse roots.
//   Coupled  matrix products only, roots 2 and 4: P ← P·h(A), A ← A·h(A)^r with h = a + bA + cA²
//            (constants: coefficients.h)
//   Eigh     float64 eigendecomposition, any root
enum class RootMethod { Coupled, Eigh };

struct RootOptions {
  RootMethod method = RootMethod::Coupled;
  int64_t steps = 12;  // of the coupled iteration; enough for every eigenvalue that float32 distinguishes from zero
};

// A^(−1/r) for symmetric positive semidefinite A (…, n, n). The amplification of the null space is bounded:
//   Eigh     eigenvalues at or below 32ε·λ_max count as zero and map to zero (the pseudo-inverse root)
//   Coupled  eigenvalues are lifted by 32ε·‖A‖_F, so that those near zero act like the smallest eigenvalue that
//            rounding can distinguish from zero
// where ε is that of the type to compute in. Sums of ten thousand GᵀG in float32 had eigenvalues down to −21ε·‖A‖_F,
// averages down to −1ε. Zero matrices give zero (Eigh) or a multiple of I (Coupled). Scale-invariant:
// (s·A)^(−1/r) = s^(−1/r)·A^(−1/r) for any s.
Tensor inverse_root(const Tensor& A, int64_t r, const RootOptions& options = {});

}  // namespace prism
