#pragma once

// Coefficient sets, random numbers, and matrices in float64 to compare the kernels with.

#include <cmath>
#include <random>
#include <vector>

#include "prism/cuda/steps.h"

namespace prism::cuda::test {

inline const std::vector<GramStep> kJordan = {{{3.4445, -4.7750, 2.0315}, false, true},
                                              {{3.4445, -4.7750, 2.0315}, false, true},
                                              {{3.4445, -4.7750, 2.0315}, false, false},
                                              {{3.4445, -4.7750, 2.0315}, false, false},
                                              {{3.4445, -4.7750, 2.0315}, false, false}};

// The set minimax9. Its later steps are polynomials of R − 1.
inline const std::vector<GramStep> kMinimax = {
    {{14.80094337, -144.4595382, 480.2615616, -617.0305152, 268.3831496}, false, true},
    {{0.2847180079, -0.2692709244, 2.9773781614, -2.3863204704, 0.4929334429}, true, false},
    {{0.8874093157, -0.2918830752, 0.9649335662, -1.1341424382, 0.3511528997}, true, false}};

inline std::vector<float> normal(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> values(size);
  for (auto& value : values) value = distribution(random);
  return values;
}

// Matrices in float64, row after row.
struct Dense {
  size_t rows, columns;
  std::vector<double> x;

  Dense(size_t rows_, size_t columns_) : rows(rows_), columns(columns_), x(rows_ * columns_) {}
  double& operator()(size_t i, size_t j) { return x[i * columns + j]; }
  double operator()(size_t i, size_t j) const { return x[i * columns + j]; }
};

inline Dense product(const Dense& A, const Dense& B) {
  Dense C(A.rows, B.columns);
  for (size_t i = 0; i < A.rows; ++i) {
    for (size_t k = 0; k < A.columns; ++k) {
      for (size_t j = 0; j < B.columns; ++j) C(i, j) += A(i, k) * B(k, j);
    }
  }
  return C;
}

inline Dense transposed(const Dense& A) {
  Dense B(A.columns, A.rows);
  for (size_t i = 0; i < A.rows; ++i) {
    for (size_t j = 0; j < A.columns; ++j) B(j, i) = A(i, j);
  }
  return B;
}

// Q of the iteration on R/size, without rounding: Q/√size is the rule's approximation of R^(−1/2).
struct InverseRoot {
  Dense Q;
  double size;
};
inline InverseRoot inverse_root(const SpectralRule& rule, Dense R) {
  double trace = 0, squares = 0;
  for (size_t i = 0; i < R.rows; ++i) trace += R(i, i);
  for (const double r : R.x) squares += r * r;
  const double size = rule.bound * rule.bound * (rule.by_norm ? std::sqrt(squares) : trace);
  for (double& r : R.x) r /= size;
  Dense Q(R.rows, R.rows);
  for (size_t i = 0; i < Q.rows; ++i) Q(i, i) = 1;
  for (const auto& step : rule.steps) {
    Dense A = R, Z(R.rows, R.rows), power(R.rows, R.rows);
    for (size_t i = 0; i < R.rows; ++i) power(i, i) = 1, A(i, i) -= step.centered ? 1 : 0;
    for (const double c : step.c) {
      for (size_t i = 0; i < Z.x.size(); ++i) Z.x[i] += c * power.x[i];
      power = product(power, A);
    }
    Q = product(Q, Z);
    R = product(product(Z, R), Z);
  }
  return {Q, size};
}

}  // namespace prism::cuda::test
