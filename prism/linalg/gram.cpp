#include "prism/linalg/gram.h"

#include <ATen/ops/matmul.h>

#include "prism/linalg/symmetric.h"

namespace prism {
namespace {

constexpr size_t kSplitSteps = 2;      // one leaves an error of 0.10 at condition 1e6, two 0.02 (Jordan, 192 × 128)
constexpr double kSplitFactor = 2048;  // 2¹¹: what fp16's 11-bit significand leaves over becomes normal numbers again

// How a product takes its operands: as they are, rounded to fp16, or split into two fp16 halves.
enum class Operands { Full, Half, LeftSplit, BothSplit };

Tensor rounded_to_half(const Tensor& X) { return X.to(at::kHalf).to(X.scalar_type()); }

Tensor low_half(const Tensor& X, const Tensor& high) { return rounded_to_half((X - high).mul_(kSplitFactor)); }

// A·B for A and B polynomials of the same symmetric matrix: they commute, and the product is symmetric.
Tensor product(const Tensor& A, const Tensor& B, Operands operands) {
  if (operands == Operands::Full) return symmetric_product(A, B);
  const Tensor left = rounded_to_half(A);
  const Tensor right = rounded_to_half(B);
  Tensor P = left.matmul(right);
  if (operands == Operands::Half) return P;
  P.add_(low_half(A, left).matmul(right), 1 / kSplitFactor);
  if (operands == Operands::BothSplit) P.add_(left.matmul(low_half(B, right)), 1 / kSplitFactor);
  return P;
}

// Horner's rule in A²: (c₀ + c₁A) + A²((c₂ + c₃A) + A²(…)); the innermost bracket takes up to three terms.
Tensor polynomial_with(const Tensor& A, const Polynomial& c, Operands operands) {
  const auto linear = [&](size_t k) {  // c_k I + c_{k+1} A
    Tensor Y = A * (k + 1 < c.size() ? c[k + 1] : 0.0);
    Y.diagonal(0, -2, -1).add_(c[k]);
    return Y;
  };
  if (c.size() <= 2) return linear(0);
  const Tensor A2 = product(A, A, operands);
  size_t k = (c.size() - 1) / 2 * 2;  // the last even index
  if (k + 1 == c.size()) k -= 2;      // its bracket would hold one term: join it to the one before
  Tensor Y = linear(k);
  if (k + 2 < c.size()) Y.add_(A2, c[k + 2]);
  while (k > 0) {
    k -= 2;
    Y = linear(k).add_(product(A2, Y, operands));
  }
  return Y;
}

}  // namespace

Tensor matrix_polynomial(const Tensor& A, const Polynomial& c) { return polynomial_with(A, c, Operands::Full); }

Tensor gram_iteration(Tensor R, const Coefficients& coefficients, Precision precision) {
  const bool full = precision == Precision::Full;
  const auto& polynomials = coefficients.polynomials();
  Tensor Q;
  for (size_t k = 0; k < polynomials.size(); ++k) {
    const Operands plain = full ? Operands::Full : Operands::Half;
    const bool split = !full && k < kSplitSteps;
    const bool quintic = polynomials[k].size() <= 3;
    Tensor Z = polynomial_with(R, polynomials[k], split && !quintic ? Operands::BothSplit : plain);
    if (!full) Z = rounded_to_half(Z);
    Q = Q.defined() ? product(Q, Z, plain) : Z;
    if (k + 1 < polynomials.size()) {
      const Operands carry = split ? Operands::LeftSplit : plain;
      R = product(product(R, Z, carry).mT(), Z, carry);  // (RZ)ᵀZ = ZRZ
      if (!full) R = symmetrised(R);
    }
  }
  return Q;
}

}  // namespace prism
