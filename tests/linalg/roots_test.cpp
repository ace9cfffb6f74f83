#include "prism/linalg/roots.h"

#include <cmath>

#include "tests/close.h"
#include "tests/linalg/matrices.h"

namespace prism {
namespace {

using test::gram_of;
using test::orthogonal;
using test::random;
using test::symmetric_power;

const RootOptions kEigh{.method = RootMethod::Eigh};

// V diag(λ) Vᵀ.
Tensor with_eigenvalues(const Tensor& lambda, uint64_t seed) {
  const Tensor V = orthogonal(lambda.size(0), seed);
  return (V * lambda).matmul(V.mT());
}

TEST(InverseRoot, IsTheInverseOfItsPower) {  // P^r · A = I
  const Tensor A = gram_of(random({3, 20, 12}));
  for (int64_t r = 1; r <= 4; ++r) {
    const Tensor P = inverse_root(A, r, kEigh);
    EXPECT_CLOSE(at::linalg_matrix_power(P, r).matmul(A), at::eye(12, at::kDouble).expand({3, 12, 12}), 1e-10) << r;
    EXPECT_CLOSE(P, symmetric_power(A, -1.0 / static_cast<double>(r)), 1e-12) << r;
  }
}

TEST(InverseRoot, ByCoupledIterationEqualsThatByEigh) {
  for (const int64_t n : {1, 2, 7, 32}) {
    const Tensor A = gram_of(random({2, 3, n + 8, n}, 1));
    for (const int64_t r : {2, 4}) {
      EXPECT_CLOSE(inverse_root(A, r), inverse_root(A, r, kEigh), 1e-10) << n << " " << r;
      EXPECT_CLOSE(inverse_root(A.to(at::kFloat), r), inverse_root(A, r, kEigh), 5e-4) << n << " " << r;
    }
  }
}

TEST(InverseRoot, ByCoupledIterationIsAccurateDownToSmallEigenvalues) {
  const Tensor lambda = at::logspace(0, -6, 16, 10, at::kDouble);
  const Tensor A = with_eigenvalues(lambda, 2);
  for (const int64_t r : {2, 4}) EXPECT_CLOSE(inverse_root(A, r), inverse_root(A, r, kEigh), 1e-7) << r;
}

TEST(InverseRoot, ScalesAsThePowerOfTheScale) {  // (sA)^(−1/r) = s^(−1/r) A^(−1/r)
  const Tensor A = gram_of(random({12, 8}, 3));
  for (const double scale : {1e-30, 1e-10, 7.0, 1e30}) {
    for (const int64_t r : {2, 4}) {
      const double factor = std::pow(scale, 1.0 / static_cast<double>(r));
      for (const auto type : {at::kFloat, at::kDouble}) {
        const double tolerance = type == at::kDouble ? 1e-12 : 1e-5;
        const Tensor scaled = (A * scale).to(type);
        EXPECT_CLOSE(inverse_root(scaled, r).to(at::kDouble) * factor, inverse_root(A.to(type), r), tolerance);
        EXPECT_CLOSE(inverse_root(scaled, r, kEigh).to(at::kDouble) * factor, inverse_root(A.to(type), r, kEigh),
                     tolerance);
      }
    }
  }
}

TEST(InverseRoot, ByEighMapsZeroEigenvaluesToZero) {
  const Tensor X = random({3, 8}, 4);  // a Gram matrix of rank 3
  for (const auto type : {at::kFloat, at::kDouble}) {
    const Tensor A = gram_of(X.to(type));
    const double tolerance = type == at::kDouble ? 1e-11 : 1e-4;
    for (int64_t r = 1; r <= 4; ++r) {
      EXPECT_CLOSE(inverse_root(A, r, kEigh), symmetric_power(gram_of(X), -1.0 / static_cast<double>(r)), tolerance)
          << r;
    }
  }
  EXPECT_SAME(inverse_root(at::zeros({2, 5, 5}), 2, kEigh), at::zeros({2, 5, 5}));
}

TEST(InverseRoot, ByEighKeepsEigenvaluesThatRoundingCanTellFromZero) {
  const Tensor lambda = at::tensor({1.0, 1e-5}, at::kDouble);
  EXPECT_CLOSE(inverse_root(with_eigenvalues(lambda, 5).to(at::kFloat), 2, kEigh),
               symmetric_power(with_eigenvalues(lambda, 5), -0.5), 0.02);
}

TEST(InverseRoot, ByCoupledIterationStaysFiniteOnSingularMatrices) {
  // Without the lift an eigenvalue of −1e-8 grows by h(0)^r a step until everything is NaN.
  for (const int64_t n : {2, 8, 64}) {
    for (const int64_t rank : {1, 2}) {
      const Tensor X = random({20, rank, n}, 6).to(at::kFloat);
      for (const int64_t r : {2, 4}) {
        const Tensor P = inverse_root(gram_of(X), r, {.steps = 20});
        const double bound = std::pow(32 * 1.19e-7, -1.0 / static_cast<double>(r));
        const Tensor scale = gram_of(X).norm(2, {-2, -1}, true).pow(1.0 / static_cast<double>(r));
        EXPECT_LE((P * scale).abs().max().item<double>(), 1.1 * bound)
            << n << " " << rank << " " << r;  // false for NaN
      }
    }
  }
}

TEST(InverseRoot, ByCoupledIterationSurvivesALongSumOfSingularMatrices) {
  const Tensor basis = random({2, 8}, 7).to(at::kFloat);
  Tensor A = at::zeros({8, 8});
  for (uint64_t t = 0; t < 2000; ++t) A.add_(gram_of(random({2, 2}, t).to(at::kFloat).matmul(basis)));
  for (const int64_t r : {2, 4}) {
    const Tensor P = inverse_root(A, r);
    EXPECT_TRUE(P.isfinite().all().item<bool>()) << r;
    const Tensor inside = basis.to(at::kDouble);  // only what A reaches is determined
    EXPECT_CLOSE(inside.matmul(P.to(at::kDouble)),
                 inside.matmul(symmetric_power(A.to(at::kDouble) + 1e-30, -1.0 / static_cast<double>(r))), 2e-2)
        << r;
  }
}

TEST(InverseRoot, OfZeroByCoupledIterationIsAMultipleOfTheIdentity) {
  const Tensor P = inverse_root(at::zeros({3, 3}), 4);
  EXPECT_CLOSE(P, at::eye(3) * P[0][0], 1e-6);
  EXPECT_TRUE(P.isfinite().all().item<bool>());
}

TEST(InverseRoot, KeepsShapeAndType) {
  for (const auto type : {at::kBFloat16, at::kFloat, at::kDouble}) {
    for (const auto& options : {RootOptions{}, kEigh}) {
      const Tensor P = inverse_root(at::eye(4).expand({2, 3, 4, 4}).to(type), 2, options);
      EXPECT_EQ(P.scalar_type(), type);
      EXPECT_CLOSE(P, at::eye(4).expand({2, 3, 4, 4}), 1e-4);
      EXPECT_SAME(inverse_root(at::zeros({2, 0, 0}, type), 2, options), at::zeros({2, 0, 0}, type));
      EXPECT_SAME(inverse_root(at::zeros({0, 3, 3}, type), 2, options), at::zeros({0, 3, 3}, type));
    }
  }
}

TEST(InverseRoot, ReadsTheSymmetricPartOnly) {
  const Tensor A = gram_of(random({9, 5}, 8));
  const Tensor skew = random({5, 5}, 9).triu(1);
  for (const auto& options : {RootOptions{}, kEigh}) {
    EXPECT_CLOSE(inverse_root(A + skew - skew.mT(), 2, options), inverse_root(A, 2, options), 1e-10);
  }
}

TEST(InverseRoot, RefusesWhatItCannotDo) {
  EXPECT_MESSAGE(inverse_root(at::zeros({3}), 2),
                 "inverse_root: expected a matrix or a batch of matrices (…, m, n), got shape [3]");
  EXPECT_MESSAGE(inverse_root(at::zeros({3, 4}), 2), "inverse_root: expected square matrices, got shape [3, 4]");
  EXPECT_MESSAGE(inverse_root(at::eye(3), 0), "inverse_root: the root must be 1 or more, got 0");
  EXPECT_MESSAGE(inverse_root(at::eye(3), 2, {.steps = 0}), "inverse_root: steps must be 1 or more, got 0");
  EXPECT_MESSAGE(inverse_root(at::eye(3), 3),
                 "inverse_root: the coupled iteration has roots 2 and 4, got 3; use RootMethod::Eigh");
}

}  // namespace
}  // namespace prism
