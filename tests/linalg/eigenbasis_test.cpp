#include "prism/linalg/eigenbasis.h"

#include "tests/close.h"
#include "tests/linalg/matrices.h"

namespace prism {
namespace {

using test::orthogonal;
using test::random;

Tensor identity_like(const Tensor& A) { return at::eye(A.size(-1), A.options()).expand_as(A); }

Tensor with_eigenvalues(const Tensor& V, const std::vector<double>& lambda) {
  return (V * at::tensor(lambda, at::kDouble)).matmul(V.mT());
}

TEST(Eigenbasis, DiagonalizesWithTheLargestEigenvalueFirst) {
  const Tensor X = random({2, 3, 9, 6});
  const Tensor A = X.mT().matmul(X);
  const Tensor V = eigenbasis(A);
  const Tensor diagonal = V.mT().matmul(A).matmul(V);
  EXPECT_CLOSE(V.mT().matmul(V), identity_like(A), 1e-12);
  EXPECT_CLOSE(diagonal, diagonal.diagonal(0, -2, -1).diag_embed(), 1e-12);
  EXPECT_CLOSE(diagonal.diagonal(0, -2, -1), at::linalg_eigvalsh(A).flip(-1), 1e-12);
}

TEST(EigenbasisStep, RepeatedConvergesToTheEigenbasis) {
  const Tensor V = orthogonal(5, 1);
  const Tensor A = with_eigenvalues(V, {16, 8, 4, 2, 1});
  Tensor Q = identity_like(A);
  for (int k = 0; k < 60; ++k) Q = eigenbasis_step(A, Q);
  EXPECT_CLOSE((Q * V).sum(0).abs(), at::ones({5}, at::kDouble), 1e-12);  // up to sign
  EXPECT_CLOSE(Q.mT().matmul(Q), at::eye(5, at::kDouble), 1e-13);
}

TEST(EigenbasisStep, IsTheOrthonormalFactorOfTheProduct) {
  const Tensor X = random({4, 8, 5}, 2);
  const Tensor A = X.mT().matmul(X);
  const Tensor Q = orthogonal(5, 3).expand({4, 5, 5}).contiguous();
  const Tensor B = eigenbasis_step(A, Q);
  EXPECT_CLOSE(B.mT().matmul(B), identity_like(A), 1e-12);
  const Tensor triangle = B.mT().matmul(A).matmul(Q);  // B·triangle = A·Q
  EXPECT_CLOSE(triangle, triangle.triu(), 1e-12);
}

TEST(EigenbasisStep, LeavesAnEigenbasisInPlaceWithItsSigns) {
  const Tensor V = orthogonal(4, 4);
  const Tensor A = with_eigenvalues(V, {5, 3, 2, 1});
  const Tensor signs = at::tensor({1.0, -1.0, -1.0, 1.0}, at::kDouble);
  EXPECT_CLOSE(eigenbasis_step(A, V * signs), V * signs, 1e-13);
}

TEST(EigenbasisStep, StaysOrthonormalWhereTheMatrixVanishes) {
  const Tensor V = orthogonal(6, 5).to(at::kFloat);
  for (const Tensor& A : {at::zeros({6, 6}), V.narrow(1, 0, 1).matmul(V.narrow(1, 0, 1).mT())}) {
    const Tensor Q = eigenbasis_step(A, V);
    EXPECT_CLOSE(Q.mT().matmul(Q), at::eye(6), 1e-5);
  }
}

TEST(EigenbasisStep, DoesNotDependOnTheScale) {
  const Tensor X = random({8, 5}, 6).to(at::kFloat);
  const Tensor A = X.mT().matmul(X);
  const Tensor Q = orthogonal(5, 7).to(at::kFloat);
  for (const double scale : {1e-36, 1e-30, 1e30, 1e36}) {
    EXPECT_CLOSE(eigenbasis_step(A * scale, Q), eigenbasis_step(A, Q), 1e-4) << scale;
    EXPECT_CLOSE(eigenbasis(A * scale).abs(), eigenbasis(A).abs(), 1e-4) << scale;
  }
}

TEST(Eigenbasis, KeepsShapeAndType) {
  for (const auto type : {at::kBFloat16, at::kFloat, at::kDouble}) {
    const Tensor A = at::eye(3).expand({2, 3, 3}).to(type);
    EXPECT_EQ(eigenbasis(A).scalar_type(), type);
    EXPECT_EQ(eigenbasis_step(A, A).scalar_type(), type);
    EXPECT_CLOSE(eigenbasis_step(A, A), A, 0.0);
    EXPECT_EQ(eigenbasis(at::zeros({2, 0, 0}, type)).sizes(), at::IntArrayRef({2, 0, 0}));
    EXPECT_EQ(eigenbasis_step(at::zeros({2, 0, 0}, type), at::zeros({2, 0, 0}, type)).sizes(),
              at::IntArrayRef({2, 0, 0}));
  }
}

TEST(Eigenbasis, RefusesWhatIsNotSquareOrDoesNotFit) {
  EXPECT_MESSAGE(eigenbasis(at::zeros({3})),
                 "eigenbasis: expected a matrix or a batch of matrices (…, m, n), got shape [3]");
  EXPECT_MESSAGE(eigenbasis(at::zeros({3, 4})), "eigenbasis: expected square matrices, got shape [3, 4]");
  EXPECT_MESSAGE(eigenbasis_step(at::zeros({3, 4}), at::zeros({3, 4})),
                 "eigenbasis_step: expected square matrices, got shape [3, 4]");
  EXPECT_MESSAGE(eigenbasis_step(at::eye(3), at::eye(4)),
                 "eigenbasis_step: Q must have the shape of A, [3, 3], got [4, 4]");
}

}  // namespace
}  // namespace prism
