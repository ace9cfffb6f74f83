#pragma once

#include "prism/linalg/batch.h"
#include "prism/linalg/coefficients.h"

namespace prism {

// How the n×n products of the Gram iteration are formed.
//   Full   in the type of R, float32 or float64
//   Split  on 16-bit operands with float32 accumulation, as tensor cores do it: in the first two steps the operand that carries the
//          small eigenvalues is split into two halves, x = h + l/2048 with h and l in fp16 (two products); afterwards plain fp16.
//          R itself stays in float32. Emulated through ATen: for accuracy studies, not for speed.
enum class Precision { Full, Split };

// The Newton-Schulz iteration on singular values, carried out on the Gram matrix R = XᵀX (symmetric, positive semidefinite, singular
// values of X at most 1/bound). Returns Q such that X·Q is what the literal iteration X ← X·q_k(XᵀX) would give. Per step
//   Z = aI + bR + cR² (+ …);  Q ← QZ;  R ← ZRZ.
// Rounding may make an eigenvalue of R slightly negative, after which it grows by a² a step: R is kept symmetric.
Tensor gram_iteration(Tensor R, const Coefficients& coefficients, Precision precision = Precision::Full);

// c₀I + c₁A + c₂A² + …, with ⌊(degree + 1)/2⌋ products.
Tensor matrix_polynomial(const Tensor& A, const Polynomial& c);

}  // namespace prism
