#pragma once

#include "prism/linalg/batch.h"
#include "prism/linalg/coefficients.h"

namespace prism {

// The divisor of R = XᵀX before the iteration, (bound·‖X‖)²: every singular value of X then lies in [0, 1/bound],
// where the iteration is stable. Shape (…, 1, 1); never 0.
Tensor gram_size(const Tensor& R, const Coefficients& coefficients);

// Runs the Newton-Schulz iteration on singular values through the Gram matrix R = XᵀX (symmetric, positive
// semidefinite, singular values of X at most 1/bound). Returns Q such that X·Q is the result of the literal iteration
// X ← X·q_k(XᵀX). Each step computes
//   Z = aI + bR + cR² (+ …);  Q ← QZ;  R ← ZRZ.
// Rounding may make an eigenvalue of R slightly negative, after which it grows by a² a step. R is kept symmetric.
Tensor gram_iteration(Tensor R, const Coefficients& coefficients);

// One step of the iteration.
struct GramStep {
  Polynomial c;  // Z = c₀ + c₁A + c₂A² + …
  // Use A = R − I instead of R: beyond degree 5 the terms in R are large and cancel. After the first step R is nearer
  // to I than to 0, and the terms in R − I are small.
  bool centered;
  // On fp16 operands (prism/cuda), the products that carry R, RZ and (RZ)ᵀZ, split their left operand into two halves:
  // R holds the small eigenvalues, and their rounding error grows by a factor of a² in each step (docs/accuracy.md).
  bool split;
};
std::vector<GramStep> gram_steps(const Coefficients& coefficients);

// c₀I + c₁A + c₂A² + … of symmetric A, for two or more coefficients; ⌊(degree + 1)/2⌋ products from degree 2 on.
Tensor matrix_polynomial(const Tensor& A, const Polynomial& c);

}  // namespace prism
