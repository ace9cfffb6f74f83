#pragma once

#include "prism/linalg/batch.h"
#include "prism/linalg/coefficients.h"

namespace prism {

// How the n×n products of the Gram iteration are formed.
//   Full   in the type of R, float32 or float64
//   Split  on fp16 operands with float32 accumulation, as tensor cores do it; R and Q are kept in float32. In the
//          first steps (two for jordan, one for minimax9) the products that carry R, RZ and (RZ)ᵀZ, split their left
//          operand into two halves (two products), x = h + l/2048 with h and l in fp16: R holds the small eigenvalues,
//          and what rounding adds to them grows by a² a step. Z is rounded once, so that R stays QᵀR₀Q to float32
//          accuracy and the later steps correct what the rounding did. All other products are plain fp16: for R² a
//          split changes nothing, for QZ it would pay only with T·Q split too. Emulated through ATen: for accuracy
//          studies, not for speed. docs/accuracy.md has the measurements.
enum class Precision { Full, Split };

// What R = XᵀX is divided by before the iteration, (bound·‖X‖)²: every singular value of X then lies in [0, 1/bound],
// where the iteration is stable. Shape (…, 1, 1); never 0.
Tensor gram_size(const Tensor& R, const Coefficients& coefficients);

// The Newton-Schulz iteration on singular values, carried out on the Gram matrix R = XᵀX (symmetric, positive
// semidefinite, singular values of X at most 1/bound). Returns Q such that X·Q is what the literal iteration
// X ← X·q_k(XᵀX) would give. Per step
//   Z = aI + bR + cR² (+ …);  Q ← QZ;  R ← ZRZ.
// Rounding may make an eigenvalue of R slightly negative, after which it grows by a² a step: R is kept symmetric.
Tensor gram_iteration(Tensor R, const Coefficients& coefficients, Precision precision = Precision::Full);

// How one step of the iteration is carried out.
struct GramStep {
  Polynomial c;  // Z = c₀ + c₁A + c₂A² + …
  // A = R − I instead of R: beyond degree 5 the terms are large and cancel, but after the first step R is nearer to I
  // than to 0, and around I they are small.
  bool centred;
  bool split;  // with Precision::Split: the products that carry R split their left operand
};
std::vector<GramStep> gram_steps(const Coefficients& coefficients);

// c₀I + c₁A + c₂A² + … of symmetric A, for two or more coefficients; ⌊(degree + 1)/2⌋ products from degree 2 on.
Tensor matrix_polynomial(const Tensor& A, const Polynomial& c);

}  // namespace prism
