#include "prism/linalg/gram.h"

#include <ATen/ops/linalg_vector_norm.h>

#include "prism/linalg/product.h"
#include "prism/linalg/scratch.h"

namespace prism {
namespace {

constexpr double kTolerableGrowth = 20;  // of a rounding error of fp16 in R

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
  Tensor E = scratch_copy(A);
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

// Horner's rule in A²: c₀ + c₁A + c₂A² + A²(c₃A + c₄A² + A²(…)). The constants stay outside the products: inside, small
// terms would be lost beside them in rounding.
Tensor matrix_polynomial(const Tensor& A, const Polynomial& c) {
  const Tensor A2 = c.size() > 2 ? symmetric_product(A, A) : Tensor();
  Tensor Y;
  for (size_t k = c.size() / 2 * 2; k > 0; k -= 2) {  // the bracket of c_{k−1}A + c_kA²
    Tensor bracket = scaled(A, c[k - 1]);
    if (k < c.size()) bracket.add_(A2, c[k]);
    Y = Y.defined() ? bracket.add_(symmetric_product(A2, Y)) : bracket;
  }
  Y.diagonal(0, -2, -1).add_(c[0]);
  return Y;
}

Tensor gram_iteration(Tensor R, const Coefficients& coefficients) {
  const auto steps = gram_steps(coefficients);
  Tensor Q;
  for (size_t k = 0; k < steps.size(); ++k) {
    const auto& c = steps[k].c;
    const Tensor Z = matrix_polynomial(steps[k].centered ? minus_identity(R) : R, c);
    // Z commutes with R and Q up to its rounding error. If that is large, forcing symmetry on RZ and QZ would ruin the
    // small eigenvalues, which ZRZ preserves for any Z.
    const auto times_Z = [&](const Tensor& A) { return c.size() <= 3 ? symmetric_product(A, Z) : product(A, Z); };
    Q = Q.defined() ? times_Z(Q) : Z;
    if (k + 1 < steps.size()) R = symmetric_product(times_Z(R).mT(), Z);  // (RZ)ᵀZ = ZRZ
  }
  return Q;
}

}  // namespace prism
