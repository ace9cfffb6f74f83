#include "prism/linalg/polar.h"

#include "tests/close.h"
#include "tests/linalg/matrices.h"

namespace prism {
namespace {

using test::norm_for;
using test::orthogonal;
using test::random;
using test::svd_polar;

const std::vector<std::pair<int64_t, int64_t>> kPolarShapes = {{24, 24}, {40, 16}, {16, 40}, {64, 8},
                                                               {8, 64},  {1, 9},   {9, 1},   {1, 1}};

PolarOptions with(Solver solver, const Coefficients& coefficients = "jordan") {
  return {.solver = solver, .coefficients = coefficients};
}

TEST(Polar, IsTheOrthogonalFactorOfTheSvd) {
  const Coefficients converged = Coefficients("converged").with_steps(30);
  for (const auto& [m, n] : kPolarShapes) {
    const Tensor X = random({m, n});
    const Tensor expected = svd_polar(X);
    EXPECT_CLOSE(polar(X, with(Solver::Exact)), expected, 1e-13);
    EXPECT_CLOSE(polar(X, with(Solver::Gram, converged)), expected, 1e-9);
    EXPECT_CLOSE(polar(X, with(Solver::Stacked, converged)), expected, 1e-12);
  }
}

TEST(Polar, AppliesTheCompositePolynomialToTheSingularValues) {
  for (const auto& name : Coefficients::names()) {
    const Coefficients set(name);
    for (const auto& [m, n] : kPolarShapes) {
      const Tensor X = random({m, n}, 1);
      const auto [U, sigma, Vh] = at::linalg_svd(X, /*full_matrices=*/false);
      Tensor image = sigma / norm_for(set.name(), sigma);
      for (int64_t i = 0; i < image.numel(); ++i) image[i] = set(image[i].item<double>());
      const Tensor expected = (U * image).matmul(Vh);
      EXPECT_CLOSE(polar(X, with(Solver::Gram, set)), expected, 1e-9) << name;
      EXPECT_CLOSE(polar(X, with(Solver::Stacked, set)), expected, 1e-9) << name;
    }
  }
}

TEST(Polar, KeepsTheSingularValuesInTheRangeOfTheSet) {
  const Tensor X = random({96, 64}, 2);  // condition 10, so that all σ/‖X‖_F lie above 1e-2
  const auto expect_range = [&](const char* name, double low, double high) {
    const Tensor sigma = at::linalg_svdvals(polar(X, with(Solver::Gram, name)));
    EXPECT_GE(sigma.min().item<double>(), low) << name;
    EXPECT_LE(sigma.max().item<double>(), high) << name;
  };
  expect_range("jordan", 0.68, 1.135);
  expect_range("you", 0.97, 1.035);
  expect_range("minimax9", 0.879, 1.121);
  expect_range("polar_express", 0.9999, 1.0001);
  expect_range("converged", 0.9999, 1.0001);
}

TEST(Polar, NeverLeavesTheRangeOfMinimaxWhateverTheSpectrum) {
  // Flat, where Schatten's norm is least beside Frobenius's, and with one to three dominant values, where it is σ₁.
  for (const double tail : {1.0, 0.3, 1e-2, 1e-4, 0.0}) {
    for (const int64_t dominant : {1, 2, 3}) {
      Tensor sigma = at::full({48}, tail, at::kDouble);
      sigma.narrow(0, 0, dominant).fill_(1);
      const Tensor X = orthogonal(48, 14).mul(sigma).matmul(orthogonal(48, 15));
      for (const auto solver : {Solver::Gram, Solver::Stacked}) {
        const Tensor image = at::linalg_svdvals(polar(X.to(at::kFloat), with(solver, "minimax9")));
        EXPECT_LE(image.max().item<double>(), 1.121) << tail << ' ' << dominant;
        EXPECT_GE(image[dominant - 1].item<double>(), 0.879) << tail << ' ' << dominant;
      }
    }
  }
}

TEST(Polar, TakesTheUsersPolynomialsOfAnyDegree) {
  const Tensor X = random({12, 8}, 3);
  const Coefficients cubic(std::vector<Polynomial>(40, {1.5, -0.5}));
  const Coefficients seventh(std::vector<Polynomial>(20, {35.0 / 16, -35.0 / 16, 21.0 / 16, -5.0 / 16}));
  const Coefficients eleventh(
      std::vector<Polynomial>(20, {693.0 / 256, -1155.0 / 256, 1386.0 / 256, -990.0 / 256, 385.0 / 256, -63.0 / 256}));
  for (const auto& set : {cubic, seventh, eleventh}) {
    EXPECT_CLOSE(polar(X, with(Solver::Gram, set)), svd_polar(X), 1e-12);
    EXPECT_CLOSE(polar(X, with(Solver::Stacked, set)), svd_polar(X), 1e-12);
  }
}

TEST(Polar, DoesOnlyTheStepsAskedFor) {
  const Tensor X = random({7, 5}, 4);
  const Tensor start = X / X.norm();
  const auto step = [](const Tensor& Y) {
    const Tensor A = Y.mT().matmul(Y);
    return 3.4445 * Y - 4.7750 * Y.matmul(A) + 2.0315 * Y.matmul(A).matmul(A);
  };
  Tensor expected = start;
  for (int64_t steps = 1; steps <= 7; ++steps) {
    expected = step(expected);
    EXPECT_CLOSE(polar(X, with(Solver::Gram, Coefficients("jordan").with_steps(steps))), expected, 1e-10) << steps;
  }
}

TEST(Polar, IsInvariantUnderScaleAndEquivariantUnderRotationAndTransposition) {
  const Tensor U = orthogonal(20, 5);
  const Tensor V = orthogonal(12, 6);
  for (const auto solver : {Solver::Gram, Solver::Stacked, Solver::Exact}) {
    const Tensor X = random({20, 12}, 7);
    const Tensor O = polar(X, with(solver));
    EXPECT_CLOSE(polar(X * 3.7e5, with(solver)), O, 1e-12);
    EXPECT_CLOSE(polar(-X, with(solver)), -O, 0.0);
    EXPECT_CLOSE(polar(X.mT(), with(solver)), O.mT(), 1e-12);
    EXPECT_CLOSE(polar(U.matmul(X).matmul(V), with(solver)), U.matmul(O).matmul(V), 1e-11);
  }
}

TEST(Polar, IsIdempotentAndLeavesOrthogonalMatricesAlone) {
  const Tensor Q = orthogonal(16, 8);
  EXPECT_CLOSE(polar(Q, with(Solver::Gram, Coefficients("converged").with_steps(16))), Q, 1e-12);
  EXPECT_CLOSE(polar(Q, with(Solver::Exact)), Q, 1e-13);
}

TEST(GramIteration, ReturnsWhatCarriesTheMatrixThroughTheLiteralIteration) {
  for (const auto& name : Coefficients::names()) {
    const Coefficients set(name);
    const Tensor X = random({30, 10}, 10);
    const Tensor start = X / (X.norm() * set.bound());
    const Tensor Q = gram_iteration(start.mT().matmul(start), set);
    EXPECT_CLOSE(start.matmul(Q), newton_schulz(start, set), 1e-10) << name;
  }
}

TEST(MatrixPolynomial, EqualsTheSumOfPowersForEveryDegree) {
  const Tensor X = random({6, 6}, 11) / 5;
  const Tensor A = X + X.mT();
  Polynomial c;
  Tensor expected = at::zeros({6, 6}, at::kDouble);
  Tensor power = at::eye(6, at::kDouble);
  for (const double next : {0.7, -1.3, 2.1, 0.4, -0.9, 1.7, 0.3, -2.2}) {
    c.push_back(next);
    expected = expected + power * next;
    power = power.matmul(A);
    if (c.size() >= 2) {
      EXPECT_CLOSE(matrix_polynomial(A, c), expected, 1e-12) << c.size();
    }
  }
}

TEST(NuclearNorm, IsTheSumOfTheSingularValues) {
  const Tensor X = random({3, 9, 5}, 12);
  EXPECT_CLOSE(nuclear_norm(X, polar(X, with(Solver::Exact))), at::linalg_svdvals(X).sum(-1).view({3, 1, 1}), 1e-12);
}

TEST(Polar, RefusesWhatIsNoMatrix) {
  EXPECT_MESSAGE(polar(at::zeros({4})), "polar: expected a matrix or a batch of matrices (…, m, n), got shape [4]");
}

}  // namespace
}  // namespace prism
