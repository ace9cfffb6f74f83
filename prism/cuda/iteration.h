#pragma once

// How the iteration on a k×k Gram matrix is carried out: which products, on which buffers, with which scales. Plain
// C++.

#include <vector>

#include "prism/cuda/launch.h"

namespace prism::cuda {

// The matrices of the iteration. Zs rotate: the first Z becomes Q.
enum Buffer { kA, kA_low, kS, kS_low, kZ0, kZ1, kZ2, kBuffers, kNone = -1 };

// One product X·Yᵀ of buffers, X or Y perhaps of two halves, and its result alpha·XYᵀ + c1·C1 + diagonal·I
// (prism/cuda/product.h).
struct IterationProduct {
  Buffer X, Y, X_low = kNone, Y_low = kNone;
  bool symmetric = true;
  float alpha = 1, c1 = 0, diagonal = 0;
  int alpha_power = 0, c1_power = 0;  // of the first A in these terms: where A lacks a factor, so do they
  Buffer C1 = kNone;
  Buffer high = kNone, low = kNone;
};

// Five coefficients with the square completed: c₀ + c₁a + … + c₄a⁴ = c₄(a² + pa + q)² + ρ₁a + ρ₀.
struct CompletedSquare {
  double p, q, rho1, rho0;
  explicit CompletedSquare(const std::vector<double>& c)
      : p(c[3] / (2 * c[4])), q((c[2] / c[4] - p * p) / 2), rho1(c[1] - 2 * c[4] * p * q), rho0(c[0] - c[4] * q * q) {}
};

// For R with eigenvalues up to 1/bound², with A = R or R − I rounded to fp16:
//   degree 2   Z = c₂A² + c₁A + c₀
//   degree 4   S = A² + pA + q;  Z = c₄S² + ρ₁A + ρ₀     the square completed: two products, both squares. Horner's
//   rule would cancel terms a
//              hundred times as large as Z where R is large, and diverge on matrices with one or two dominant singular
//              values
//   Q ← QZ;  R ← ZRZ
// Every buffer holds its matrix times a power of two that takes the largest value the iteration can reach well below
// fp16's 65504: entries of a symmetric matrix are bounded by its largest eigenvalue, and those by the polynomials.
struct Iteration {
  float A_scale;  // at the start: A = A_scale·R, split into kA and kA_low
  bool A_split;   // whether the first step reads kA_low
  std::vector<IterationProduct> products;
  Buffer Q;  // the result
  float Q_scale;
};

// Steps of three or five coefficients.
Iteration plan_iteration(const std::vector<GramStep>& steps, double bound);

}  // namespace prism::cuda
