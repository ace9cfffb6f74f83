// Float64 oracles of PRISM and its relatives.

#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/optim/helpers.h"

namespace prism::test {

// R^(−1/p) of a positive definite matrix.
inline Tensor inverse_power_by_eigh(const Tensor& R, double p) {
  const auto [lambda, V] = torch::linalg_eigh(R);
  return torch::matmul(V * lambda.pow(-1 / p), V.mT());
}

// The paper's update by its definition: the top block of the polar factor of [T; γD].
inline Tensor stacked_oracle(const Tensor& T, const Tensor& D, double gamma, bool left) {
  if (left) return stacked_oracle(T.mT(), D.mT(), gamma, false).mT();
  return polar_by_svd(torch::cat({T, gamma * D}, 0)).narrow(0, 0, T.size(0));
}

// The momentum of one matrix, step by step.
struct Replay {
  Tensor W;
  Tensor M;
  Tensor G, T, D;

  explicit Replay(const Tensor& start) : W(start.clone()), M(torch::zeros_like(start)) {}
  void observe(const Tensor& gradient, double beta, bool nesterov) {
    G = gradient;
    M = beta * M + (1 - beta) * G;
    D = G - M;
    T = nesterov ? (1 - beta) * G + beta * M : M;
  }
};

inline double moonlight(const Tensor& W) {
  return 0.2 * std::sqrt(static_cast<double>(std::max(W.size(-2), W.size(-1))));
}

inline const std::vector<std::vector<int64_t>> kShapes = {{12, 5}, {5, 12}, {7, 7}, {4, 16}, {16, 4}, {1, 6}, {6, 1}};

inline PrismOptions with_covariance(CovarianceKind kind, int64_t rank) {
  auto options = PrismOptions(0.1).covariance(kind);
  return kind == CovarianceKind::Sketch || kind == CovarianceKind::Subspace ? options.rank(rank) : options;
}

}  // namespace prism::test
