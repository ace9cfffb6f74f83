#pragma once

// Matrices with a known spectrum, and float64 oracles that share no code with the library.

#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

namespace prism::test {

using at::Tensor;

// Returns normal numbers from a generator of their own, so that no test depends on what another draws.
inline Tensor random(at::IntArrayRef shape, uint64_t seed = 0) {
  auto generator = at::detail::createCPUGenerator(seed);
  return at::randn(shape, generator, at::kDouble);
}

inline Tensor orthogonal(int64_t n, uint64_t seed) { return std::get<0>(at::linalg_qr(random({n, n}, seed))); }

inline Tensor gram_of(const Tensor& X) { return X.mT().matmul(X); }

// U diag(σ) Vᵀ with random orthogonal factors; σ has min(m, n) entries.
inline Tensor with_singular_values(int64_t m, int64_t n, const Tensor& sigma, uint64_t seed) {
  const int64_t k = sigma.size(0);
  const Tensor U = orthogonal(m, seed).narrow(1, 0, k);
  const Tensor V = orthogonal(n, seed + 1).narrow(1, 0, k);
  return (U * sigma).matmul(V.mT());
}

// Returns the norm that divides the singular values before a set of this name is applied to them.
inline Tensor norm_for(const std::string& set, const Tensor& sigma) {
  return set == "minimax9" ? sigma.pow(4).sum().pow(0.25) : sigma.square().sum().sqrt();
}

// The spectra on which low precision fails first.
inline std::vector<std::pair<std::string, Tensor>> hard_matrices(int64_t m, int64_t n) {
  const Tensor i = at::arange(1, n + 1, at::kDouble);
  Tensor spike = random({n}, 7).abs().add(0.5).mul(0.01);
  spike[0] = 1;
  return {{"random", random({m, n}, 1)},
          {"σ ~ i^−2", with_singular_values(m, n, i.pow(-2), 2)},
          {"rank 1", with_singular_values(m, n, i.eq(1).to(at::kDouble), 3)},
          {"rank n/2", with_singular_values(m, n, random({n}, 4).abs().add(0.2) * i.le(n / 2), 4)},
          {"condition 1e6", with_singular_values(m, n, at::logspace(0, -6, n, 10, at::kDouble), 5)},
          {"spike", with_singular_values(m, n, spike, 6)}};
}

// A^p of symmetric A over its eigenvalues above 1e-13 of the largest.
inline Tensor symmetric_power(const Tensor& A, double p) {
  const auto [lambda, V] = at::linalg_eigh(A);
  const Tensor kept = lambda.gt(lambda.amax(-1, true) * 1e-13);
  return (V * at::where(kept, lambda, 1).pow(p).mul(kept).unsqueeze(-2)).matmul(V.mT());
}

// UVᵀ over the nonzero singular values.
inline Tensor svd_polar(const Tensor& X) {
  const auto [U, sigma, Vh] = at::linalg_svd(X, /*full_matrices=*/false);
  const Tensor kept = sigma.gt(sigma.amax(-1, true) * 1e-13).to(at::kDouble);
  return (U * kept.unsqueeze(-2)).matmul(Vh);
}

// The paper's definition: the top block of polar([T; γD]).
inline Tensor stacked_definition(const Tensor& T, const Tensor& D, double gamma) {
  return svd_polar(at::cat({T, D * gamma}, -2)).narrow(-2, 0, T.size(-2));
}

inline double relative_error(const Tensor& actual, const Tensor& expected) {
  return ((actual.to(at::kDouble) - expected).norm() / expected.norm()).item<double>();
}

}  // namespace prism::test
