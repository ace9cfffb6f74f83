#pragma once

// The plan of the iteration on a k×k Gram matrix: its products, with their buffers and scales. Plain C++.

#include <vector>

#include "prism/cuda/steps.h"

namespace prism::cuda {

// The matrices of the iteration. Zs rotate: the first Z becomes Q. kZ_bytes is a copy of Z in bytes, by which low halves
// in bytes are multiplied (prism/cuda/product.h).
enum Buffer { kA, kA_low, kS, kS_low, kZ0, kZ1, kZ2, kZ_bytes, kBuffers, kNone = -1 };

// One product X·Yᵀ of buffers, in which X or Y may have two halves, and its result alpha·XYᵀ + c1·C1 + diagonal·I
// (prism/cuda/product.h).
//
// If `added` is not 0, the low half of matrices with sides from `added_from` on is not multiplied: added·(low half) is
// added, with the same power of A as alpha.
struct IterationProduct {
  Buffer X, Y, X_low = kNone, Y_low = kNone;
  float added = 0;
  int64_t added_from = 0;
  bool reads_bytes = false;  // the low half may be in bytes
  bool symmetric = true;
  float alpha = 1, c1 = 0, diagonal = 0;
  int alpha_power = 0, c1_power = 0;  // powers of the first A in these terms: a factor missing in A is missing here
  Buffer C1 = kNone;
  Buffer high = kNone, low = kNone;
  bool writes_bytes = false;  // the same for `low`
  Buffer copy = kNone;        // of `high` in bytes

  // True if only the lower triangle is read later, so that no more need be written: of the result; of X and its low half;
  // of Y and its low half. Matrices in bytes are read whole.
  bool lower = false, X_lower = false, Y_lower = false;

  bool adds_low(int64_t side) const { return added != 0 && side >= added_from; }
};

// Five coefficients with the square completed: c₀ + c₁a + … + c₄a⁴ = c₄(a² + pa + q)² + ρ₁a + ρ₀.
struct CompletedSquare {
  double p, q, rho1, rho0;
  explicit CompletedSquare(const std::vector<double>& c)
      : p(c[3] / (2 * c[4])), q((c[2] / c[4] - p * p) / 2), rho1(c[1] - 2 * c[4] * p * q), rho0(c[0] - c[4] * q * q) {}
};

// For R with eigenvalues up to 1/bound², with A = R or R − I rounded to fp16:
//   degree 2   Z = c₂A² + c₁A + c₀
//   degree 4   S = A² + pA + q;  Z = c₄S² + ρ₁A + ρ₀
//              Completing the square takes two products, both squares. With Horner's rule, terms a hundred times as
//              large as Z would cancel where R is large, and matrices with one or two dominant singular values diverge.
//   Q ← QZ;  R ← ZRZ
// Every buffer holds its matrix times a power of two that brings the largest value the iteration can reach well below
// fp16's 65504: entries of a symmetric matrix are bounded by its largest eigenvalue, and the polynomials bound that.
struct Iteration {
  float A_scale;  // at the start: A = A_scale·R, split into kA and kA_low
  bool A_split;   // true if the first step reads kA_low
  bool A_bytes;   // true if kA_low may be in bytes
  bool A_lower;   // true if only the lower triangle of the first A is read
  std::vector<IterationProduct> products;
  Buffer Q;  // the result
  float Q_scale;
};

// Plans the iteration. Each step must have three or five coefficients.
Iteration plan_iteration(const std::vector<GramStep>& steps, double bound);

}  // namespace prism::cuda
