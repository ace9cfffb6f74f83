#include "prism/linalg/polar.h"

#include "prism/linalg/product.h"
#include "prism/linalg/shaping.h"

namespace prism {

Tensor polar(const Tensor& X, const PolarOptions& options) {
  check_matrix("polar", X);
  ShapingOptions shaping;
  shaping.gamma = 0;
  shaping.polar = options;
  return shape_momentum(X, Tensor(), shaping);
}

Tensor nuclear_norm(const Tensor& X, const Tensor& polar_factor) { return (X * polar_factor).sum({-2, -1}, true); }

Tensor newton_schulz(Tensor X, const Coefficients& coefficients) {
  for (Polynomial c : coefficients.polynomials()) {
    const Tensor A = product(X.mT(), X);
    const double a = c[0];
    c[0] = 0;
    X = X.mul(a).add_(product(X, matrix_polynomial(A, c)));  // aX + X(bA + cA² + …)
  }
  return X;
}

}  // namespace prism
