#pragma once

#include "prism/linalg/batch.h"
#include "prism/linalg/coefficients.h"

namespace prism {

// The precision of the n×n products of the Gram iteration.
//   Full   the type of R, float32 or float64
//   Split  fp16 operands with float32 accumulation, as in tensor cores; R and Q are kept in float32. In the first steps
//          (two for jordan, one for minimax9) the products that carry R, RZ and (RZ)ᵀZ, split their left operand into
//          two halves (two products), x = h + l/2048 with h and l in fp16: R holds the small eigenvalues, and their
//          rounding error grows by a factor of a² in each step. Z is rounded once, so that R stays QᵀR₀Q to float32
//          accuracy and the later steps correct the rounding. All other products are plain fp16: for R² a split changes
//          nothing; for QZ it would help only if T·Q were split too. Emulated through ATen, for accuracy studies.
//          docs/accuracy.md has the measurements.
enum class Precision { Full, Split };

// The divisor of R = XᵀX before the iteration, (bound·‖X‖)²: every singular value of X then lies in [0, 1/bound],
// where the iteration is stable. Shape (…, 1, 1); never 0.
Tensor gram_size(const Tensor& R, const Coefficients& coefficients);

// Runs the Newton-Schulz iteration on singular values through the Gram matrix R = XᵀX (symmetric, positive
// semidefinite, singular values of X at most 1/bound). Returns Q such that X·Q is the result of the literal iteration
// X ← X·q_k(XᵀX). Each step computes
//   Z = aI + bR + cR² (+ …);  Q ← QZ;  R ← ZRZ.
// Rounding may make an eigenvalue of R slightly negative, after which it grows by a² a step. R is kept symmetric.
Tensor gram_iteration(Tensor R, const Coefficients& coefficients, Precision precision = Precision::Full);

// One step of the iteration.
struct GramStep {
  Polynomial c;  // Z = c₀ + c₁A + c₂A² + …
  // Use A = R − I instead of R: beyond degree 5 the terms in R are large and cancel. After the first step R is nearer
  // to I than to 0, and the terms in R − I are small.
  bool centered;
  bool split;  // with Precision::Split: the products that carry R split their left operand
};
std::vector<GramStep> gram_steps(const Coefficients& coefficients);

// c₀I + c₁A + c₂A² + … of symmetric A, for two or more coefficients; ⌊(degree + 1)/2⌋ products from degree 2 on.
Tensor matrix_polynomial(const Tensor& A, const Polynomial& c);

}  // namespace prism
