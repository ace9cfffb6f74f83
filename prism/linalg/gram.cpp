#include "prism/linalg/gram.h"

#include <ATen/ops/matmul.h>

namespace prism {
namespace {

constexpr size_t kSplitSteps = 2;       // one split step leaves 0.003–0.024, two 0.003–0.010 on real momenta
constexpr double kSplitFactor = 2048;   // 2¹¹: what fp16's 11-bit significand leaves over becomes normal numbers again

Tensor rounded_to_half(const Tensor& X) { return X.to(at::kHalf).to(X.scalar_type()); }

// A·B under a precision. The left operand is the one whose small eigenvalues must survive.
struct Product {
  Precision precision;
  size_t step;

  Tensor operator()(const Tensor& A, const Tensor& B) const {
    if (precision == Precision::Full) return A.matmul(B);
    const Tensor high = rounded_to_half(A);
    const Tensor right = rounded_to_half(B);
    Tensor product = high.matmul(right);
    if (step < kSplitSteps) {
      const Tensor low = rounded_to_half((A - high).mul_(kSplitFactor));
      product.add_(low.matmul(right), 1 / kSplitFactor);
    }
    return product;
  }
};

// Horner's rule in A²: (c₀ + c₁A) + A²((c₂ + c₃A) + A²(…)); the innermost bracket takes up to three terms.
Tensor polynomial_with(const Tensor& A, const Polynomial& c, const Product& product) {
  const auto linear = [&](size_t k) {  // c_k I + c_{k+1} A
    Tensor Y = A * (k + 1 < c.size() ? c[k + 1] : 0.0);
    Y.diagonal(0, -2, -1).add_(c[k]);
    return Y;
  };
  if (c.size() <= 2) return linear(0);
  const Tensor A2 = product(A, A);
  size_t k = (c.size() - 1) / 2 * 2;             // the last even index
  if (k + 1 == c.size()) k -= 2;                 // its bracket would hold one term: join it to the one before
  Tensor Y = linear(k);
  if (k + 2 < c.size()) Y.add_(A2, c[k + 2]);
  while (k > 0) {
    k -= 2;
    Y = linear(k).add_(product(A2, Y));
  }
  return Y;
}

}  // namespace

Tensor matrix_polynomial(const Tensor& A, const Polynomial& c) { return polynomial_with(A, c, {Precision::Full, 0}); }

Tensor gram_iteration(Tensor R, const Coefficients& coefficients, Precision precision) {
  const auto& polynomials = coefficients.polynomials();
  Tensor Q;
  for (size_t k = 0; k < polynomials.size(); ++k) {
    const Product product{precision, k};
    const Tensor Z = polynomial_with(R, polynomials[k], product);
    Q = Q.defined() ? product(Q, Z) : Z;
    if (k + 1 < polynomials.size()) {
      const Tensor RZ = product(R, Z);
      R = symmetrised(product(RZ.mT(), Z));  // (RZ)ᵀZ = ZRZ
    }
  }
  return Q;
}

}  // namespace prism
