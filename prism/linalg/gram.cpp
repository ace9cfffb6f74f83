#include "prism/linalg/gram.h"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>

#include "prism/cuda/iteration.h"
#include "prism/linalg/symmetric.h"

namespace prism {
namespace {

constexpr double kTolerableGrowth = 20;  // of a rounding error of fp16 in R
constexpr double kSplitFactor = 2048;    // 2¹¹ makes the remainder after fp16's 11-bit significand normal again

// How a product treats its operands: unchanged, for a symmetric or for any result; rounded to fp16; the left one split
// into fp16 halves.
enum class Operands { Symmetric, Full, Half, Split };

Tensor rounded_to_half(const Tensor& X) { return X.to(at::kHalf).to(X.scalar_type()); }

Tensor product(const Tensor& A, const Tensor& B, Operands operands) {
  if (operands == Operands::Symmetric) return symmetric_product(A, B);
  if (operands == Operands::Full) return A.matmul(B);
  const Tensor left = rounded_to_half(A);
  const Tensor right = rounded_to_half(B);
  Tensor P = left.matmul(right);
  if (operands == Operands::Half) return P;
  const Tensor low = rounded_to_half((A - left).mul_(kSplitFactor));
  return P.add_(low.matmul(right), 1 / kSplitFactor);
}

// Horner's rule in A²: c₀ + c₁A + c₂A² + A²(c₃A + c₄A² + A²(…)). The constants stay outside the products: inside, small
// terms would be lost beside them in rounding.
Tensor polynomial_with(const Tensor& A, const Polynomial& c, Operands operands) {
  const Tensor A2 = c.size() > 2 ? product(A, A, operands) : Tensor();
  Tensor Y;
  for (size_t k = c.size() / 2 * 2; k > 0; k -= 2) {  // the bracket of c_{k−1}A + c_kA²
    Tensor bracket = A * c[k - 1];
    if (k < c.size()) bracket.add_(A2, c[k]);
    Y = Y.defined() ? bracket.add_(product(A2, Y, operands)) : bracket;
  }
  Y.diagonal(0, -2, -1).add_(c[0]);
  return Y;
}

// The same on fp16 operands for five coefficients, by completing the square: S = A² + pA + q, c₄S² + ρ₁A + ρ₀. With
// Horner's rule, terms a hundred times as large as the sum would cancel. The linear terms use the rounded A, too: the
// exact A would not match the rounded one in the products.
Tensor polynomial_by_squares(const Tensor& A, const Polynomial& c) {
  const auto [p, q, rho1, rho0] = cuda::CompletedSquare(c);
  const Tensor rounded = rounded_to_half(A);
  Tensor S = product(rounded, rounded, Operands::Half).add_(rounded, p);
  S.diagonal(0, -2, -1).add_(q);
  Tensor Z = product(S, S, Operands::Half).mul_(c[4]).add_(rounded, rho1);
  Z.diagonal(0, -2, -1).add_(rho0);
  return Z;
}

// The coefficients of the same polynomial in powers of x − 1.
Polynomial around_one(Polynomial c) {
  for (size_t i = 0; i + 1 < c.size(); ++i) {
    for (size_t j = c.size() - 1; j > i; --j) c[j - 1] += c[j];
  }
  return c;
}

// The growth of an error near zero that step k leaves in R, until R is last used: a factor of a² in each step between.
double growth_after(size_t k, const std::vector<Polynomial>& polynomials) {
  double growth = 1;
  for (size_t j = k + 1; j + 1 < polynomials.size(); ++j) growth *= polynomials[j][0] * polynomials[j][0];
  return growth;
}

Tensor minus_identity(const Tensor& A) {
  Tensor E = A.clone();
  E.diagonal(0, -2, -1).sub_(1);
  return E;
}

}  // namespace

std::vector<GramStep> gram_steps(const Coefficients& coefficients) {
  const auto& polynomials = coefficients.polynomials();
  std::vector<GramStep> steps;
  for (size_t k = 0; k < polynomials.size(); ++k) {
    const bool centered = k > 0 && polynomials[k].size() > 3;
    steps.push_back({centered ? around_one(polynomials[k]) : polynomials[k], centered,
                     k + 1 < polynomials.size() && growth_after(k, polynomials) > kTolerableGrowth});
  }
  return steps;
}

Tensor gram_size(const Tensor& R, const Coefficients& coefficients) {
  const Tensor size = coefficients.norm() == Norm::Frobenius ? R.diagonal(0, -2, -1).sum(-1).unsqueeze(-1).unsqueeze(-1)
                                                             : at::linalg_vector_norm(R, 2, {-2, -1}, /*keepdim=*/true);
  return nonzero_or_one(size).mul_(coefficients.bound() * coefficients.bound());
}

Tensor matrix_polynomial(const Tensor& A, const Polynomial& c) { return polynomial_with(A, c, Operands::Symmetric); }

Tensor gram_iteration(Tensor R, const Coefficients& coefficients, Precision precision) {
  const bool full = precision == Precision::Full;
  const Operands symmetric = full ? Operands::Symmetric : Operands::Half;
  const auto steps = gram_steps(coefficients);
  Tensor Q;
  for (size_t k = 0; k < steps.size(); ++k) {
    const auto& [c, centered, split] = steps[k];
    const Tensor A = centered ? minus_identity(R) : R;
    Tensor Z = !full && c.size() == 5 ? polynomial_by_squares(A, c) : polynomial_with(A, c, symmetric);
    if (!full) Z = rounded_to_half(Z);
    // Z commutes with R and Q up to its rounding error. If that is large, forcing symmetry on RZ and QZ would ruin the
    // small eigenvalues, which ZRZ preserves for any Z.
    const bool quintic = c.size() <= 3;
    const Operands commuting = full && !quintic ? Operands::Full : symmetric;
    Q = Q.defined() ? product(Q, Z, commuting) : Z;
    if (k + 1 < steps.size()) {
      const bool halves = !full && split;
      const Tensor RZ = product(R, Z, halves ? Operands::Split : commuting);
      R = product(RZ.mT(), Z, halves ? Operands::Split : symmetric);  // (RZ)ᵀZ = ZRZ
      if (!full) R = symmetrized(R);
    }
  }
  return Q;
}

}  // namespace prism
