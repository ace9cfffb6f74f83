#include "prism/linalg/diagnostics.h"

#include <cmath>

#include "tests/close.h"
#include "tests/linalg/matrices.h"

namespace prism {
namespace {

using test::random;

const PolarOptions kExact{.solver = Solver::Exact};

Tensor shaped(const Tensor& T, const Tensor& D, double gamma, Side side) {
  return shape_momentum(T, D, {.gamma = gamma, .side = side, .polar = kExact});
}

TEST(Spectrum, OfTheExactUpdateFollowsTheGainLaw) {
  for (const auto& [m, n] : std::vector<std::pair<int64_t, int64_t>>{{12, 7}, {7, 12}, {4, 12}, {12, 4}, {8, 8}}) {
    for (const Side side : {Side::Short, Side::Left, Side::Right}) {
      const Tensor T = random({2, m, n}, 1);
      const Tensor D = random({2, m, n}, 2);
      const Spectrum found = spectrum(T, D, shaped(T, D, 0.8, side), 0.8, side);
      const bool left = resolved_side(side, m, n) == Side::Left;
      const int64_t k = left ? std::min(m, 2 * n) : std::min(2 * m, n);
      EXPECT_EQ(found.snr.sizes(), at::IntArrayRef({2, k}));
      EXPECT_CLOSE(found.gain, found.theory, 1e-9);
      EXPECT_CLOSE(found.theory, (1 + 0.64 / found.snr.square()).rsqrt(), 1e-12);
      EXPECT_CLOSE(found.singular_values, at::linalg_svdvals(T), 1e-12);
      const Tensor stack = left ? at::cat({T, D * 0.8}, -1) : at::cat({T, D * 0.8}, -2);
      EXPECT_CLOSE(found.augmented, at::linalg_svdvals(stack), 1e-12);
    }
  }
}

TEST(Spectrum, MeasuresAlongTheEigenvectorsLargestFirst) {
  // Diagonal T and D: the eigenvectors are the axes, with energies σ² + γ²δ².
  const Tensor sigma = at::tensor({1.0, 4.0, 2.0}, at::kDouble);
  const Tensor delta = at::tensor({3.0, 0.5, 1.0}, at::kDouble);
  const Tensor O = at::tensor({0.1, 0.2, 0.3}, at::kDouble).diag();
  const Spectrum found = spectrum(sigma.diag(), delta.diag(), O, 2);  // energies 37, 17, 8
  EXPECT_CLOSE(found.snr, at::tensor({1 / 3.0, 8.0, 2.0}, at::kDouble), 1e-12);
  EXPECT_CLOSE(found.gain, at::tensor({0.1, 0.2, 0.3}, at::kDouble), 1e-12);
  EXPECT_CLOSE(found.theory, at::tensor({1 / std::sqrt(37.0), 4 / std::sqrt(17.0), 2 / std::sqrt(8.0)}, at::kDouble),
               1e-12);
  EXPECT_CLOSE(found.singular_values, at::tensor({4.0, 2.0, 1.0}, at::kDouble), 1e-12);
}

// ‖Ov‖ = ‖Tv‖/√λ · p(√λ/norm) along every eigenvector, whatever the set.
TEST(Spectrum, OfAnIterationIsTheLawTimesItsPolynomial) {
  const Tensor T = random({20, 12}, 1);
  const Tensor D = random({20, 12}, 2);
  for (const char* name : {"jordan", "minimax9", "polar_express"}) {
    const Coefficients p(name);
    const Tensor O = shape_momentum(T, D, {.gamma = 0.8, .polar = {.coefficients = p}});
    const Spectrum found = spectrum(T, D, O, 0.8);
    const Tensor squares = found.augmented.square();
    const double norm = p.norm() == Norm::Frobenius ? std::sqrt(squares.sum().item<double>())
                                                    : std::pow(squares.square().sum().item<double>(), 0.25);
    for (int64_t k = 0; k < 12; ++k) {
      const double x = found.augmented[k].item<double>() / norm;
      EXPECT_NEAR(found.gain[k].item<double>(), found.theory[k].item<double>() * p(x), 1e-9) << name << " " << k;
    }
  }
}

TEST(Spectrum, OnTheLeftIsThatOfTheTransposeOnTheRight) {
  const Tensor T = random({9, 5}, 3);
  const Tensor D = random({9, 5}, 4);
  const Tensor O = random({9, 5}, 5);
  const Spectrum left = spectrum(T, D, O, 1, Side::Left);
  const Spectrum right = spectrum(T.mT(), D.mT(), O.mT(), 1, Side::Right);
  EXPECT_CLOSE(left.snr, right.snr, 0.0);
  EXPECT_CLOSE(left.gain, right.gain, 0.0);
  EXPECT_CLOSE(left.theory, right.theory, 0.0);
}

TEST(Spectrum, WithoutNoiseHasInfiniteSnrAndGainOne) {
  const Tensor T = random({8, 5}, 6);
  const Spectrum found = spectrum(T, at::zeros_like(T), polar(T, kExact), 1);
  EXPECT_TRUE(found.snr.isinf().all().item<bool>());
  EXPECT_CLOSE(found.gain, at::ones({5}, at::kDouble), 1e-12);
  EXPECT_CLOSE(found.theory, at::ones({5}, at::kDouble), 1e-12);
}

TEST(Spectrum, OfMuonHasGainOneWhateverTheSnr) {
  const Tensor T = random({8, 5}, 7);
  const Spectrum found = spectrum(T, random({8, 5}, 8), polar(T, kExact), /*gamma=*/0);
  EXPECT_TRUE(found.snr.isfinite().all().item<bool>());
  EXPECT_CLOSE(found.gain, at::ones({5}, at::kDouble), 1e-12);
  EXPECT_CLOSE(found.theory, at::ones({5}, at::kDouble), 1e-12);
}

TEST(Spectrum, IsZeroWhereTheSignalVanishes) {
  const Tensor T = random({8, 2}, 9).matmul(random({2, 5}, 10));
  const Spectrum muon = spectrum(T, random({8, 5}, 11), polar(T, kExact), /*gamma=*/0);
  const Spectrum both = spectrum(T, T * 2, shaped(T, T * 2, 1, Side::Right), 1);
  for (const auto& found : {muon, both}) {
    EXPECT_SAME(found.snr.narrow(0, 2, 3), at::zeros({3}, at::kDouble));
    EXPECT_SAME(found.theory.narrow(0, 2, 3), at::zeros({3}, at::kDouble));
    EXPECT_CLOSE(found.gain.narrow(0, 2, 3), at::zeros({3}, at::kDouble), 1e-12);
  }
  EXPECT_CLOSE(both.snr.narrow(0, 0, 2), at::full({2}, 0.5, at::kDouble), 1e-12);
  const Tensor zero = at::zeros({8, 5});
  EXPECT_SAME(spectrum(zero, zero, zero, 1).snr, at::zeros({5}, at::kDouble));
  EXPECT_SAME(spectrum(zero, zero, zero, 1).theory, at::zeros({5}, at::kDouble));
}

TEST(Spectrum, OfAnAveragedCovarianceFollowsTheSameLaw) {
  for (const Side side : {Side::Left, Side::Right}) {
    const Tensor T = random({2, 9, 6}, 12) * 1e-20;
    const Tensor D = random({2, 30, side == Side::Left ? 9 : 6}, 13) * 1e-20;
    const Covariance covariance{D.mT().matmul(D) * 1e40 / 16, at::full({2, 1, 1}, 4e-20, at::kDouble)};
    const Tensor O = shape_with_covariance(T, covariance, covariance, {.gamma = 0.5, .side = side, .polar = kExact});
    const Spectrum found = spectrum(T, covariance, O, 0.5, side);
    EXPECT_EQ(found.snr.size(-1), side == Side::Left ? 9 : 6);
    EXPECT_CLOSE(found.gain, found.theory, 1e-7);
    EXPECT_CLOSE(found.theory.masked_fill(found.snr.eq(0), 0), (1 + 0.25 / found.snr.square()).rsqrt(), 1e-12);
    EXPECT_CLOSE(found.singular_values * 1e20, at::linalg_svdvals(T) * 1e20, 1e-12);
  }
}

TEST(Spectrum, OfTheInstantCovarianceEqualsThatOfTheInnovation) {
  const Tensor T = random({9, 6}, 14);
  const Tensor D = random({9, 6}, 15);
  const Tensor O = random({9, 6}, 16);
  const Spectrum expected = spectrum(T, D, O, 0.7);
  const Spectrum found = spectrum(T, Covariance{D.mT().matmul(D), at::ones({1, 1}, at::kDouble)}, O, 0.7);
  EXPECT_CLOSE(found.snr, expected.snr, 1e-10);
  EXPECT_CLOSE(found.gain, expected.gain, 1e-10);
  EXPECT_CLOSE(found.theory, expected.theory, 1e-10);
}

TEST(Spectrum, DoesNotDependOnTheScale) {
  const Tensor T = random({6, 4}, 17);
  const Tensor D = random({6, 4}, 18);
  const Tensor O = polar(T);
  const Spectrum expected = spectrum(T, D, O, 1);
  for (const double scale : {1e30, 1e-30}) {
    const Spectrum found = spectrum((T * scale).to(at::kFloat), (D * scale).to(at::kFloat), O, 1);
    EXPECT_CLOSE(found.snr, expected.snr, 1e-5);
    EXPECT_CLOSE(found.theory, expected.theory, 1e-5);
    EXPECT_CLOSE(found.singular_values / scale, expected.singular_values, 1e-5);
  }
}

TEST(Spectrum, OfEmptyMatricesIsEmpty) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{0, 4}, {4, 0}, {2, 0, 4}, {0, 3, 4}}) {
    const Tensor X = at::zeros(shape);
    EXPECT_EQ(spectrum(X, X, X, 1).snr.numel(), 0);
  }
}

TEST(Spectrum, RefusesWhatDoesNotFit) {
  const Tensor T = random({4, 3});
  EXPECT_MESSAGE(spectrum(at::zeros({4}), T, T, 1), "spectrum: expected a matrix");
  EXPECT_MESSAGE(spectrum(T, T, T.mT(), 1), "spectrum: O must have the shape of T, [4, 3], got [3, 4]");
  EXPECT_MESSAGE(spectrum(T, T.mT(), T, 1), "spectrum: D must have the shape of T, [4, 3], got [3, 4]");
  EXPECT_MESSAGE(spectrum(T, T, T, 1, Side::Both), "spectrum: side 'both' has no gain law; use left or right");
}

}  // namespace
}  // namespace prism
