#include "prism/linalg/shaping.h"

#include <cmath>

#include "tests/close.h"
#include "tests/linalg/matrices.h"

namespace prism {
namespace {

using test::orthogonal;
using test::random;
using test::stacked_definition;
using test::svd_polar;
using test::symmetric_power;

// m/n from 1/8 to 8.
const std::vector<std::pair<int64_t, int64_t>> kShapes = {{3, 24},  {6, 24}, {9, 18}, {10, 15}, {14, 14},
                                                          {15, 10}, {18, 9}, {24, 6}, {24, 3}};
const std::vector<double> kGammas = {0, 0.1, 1, 10, 100};
const std::vector<Side> kSides = {Side::Left, Side::Right, Side::Both};

const Coefficients& exact_set() {
  static const Coefficients set = Coefficients("converged").with_steps(32);
  return set;
}

ShapingOptions with(double gamma, Side side = Side::Short, Solver solver = Solver::Gram,
                    const Coefficients& set = exact_set()) {
  return {.gamma = gamma, .side = side, .polar = {.solver = solver, .coefficients = set}};
}

Tensor signal(int64_t m, int64_t n) { return random({m, n}, 1); }
Tensor noise(int64_t m, int64_t n) { return random({m, n}, 2) * 1.5; }

// Each side's definition by SVD or eigh, without a line of the library.
Tensor definition(const Tensor& T, const Tensor& D, double gamma, Side side) {
  if (side == Side::Right) return stacked_definition(T, D, gamma);
  if (side == Side::Left) return stacked_definition(T.mT(), D.mT(), gamma).mT();
  const Tensor L = T.matmul(T.mT()) + D.matmul(D.mT()) * (gamma * gamma);
  const Tensor R = T.mT().matmul(T) + D.mT().matmul(D) * (gamma * gamma);
  return symmetric_power(L, -0.25).matmul(T).matmul(symmetric_power(R, -0.25));
}

TEST(Shaping, IsTheTopBlockOfThePolarFactorOfTheStack) {
  for (const auto& [m, n] : kShapes) {
    const Tensor T = signal(m, n);
    const Tensor D = noise(m, n);
    for (const double gamma : kGammas) {
      for (const Side side : kSides) {
        const auto where = testing::Message()
                           << m << " × " << n << ", γ " << gamma << ", side " << static_cast<int>(side);
        const Tensor expected = definition(T, D, gamma, side);
        const double eigh = side == Side::Both ? 1e-6 : 1e-11;  // of a rank-deficient Gram matrix, at γ 0.1
        EXPECT_CLOSE(shape_momentum(T, D, with(gamma, side, Solver::Exact)), expected, eigh) << where;
        EXPECT_CLOSE(shape_momentum(T, D, with(gamma, side, Solver::Gram)), expected, 1e-6) << where;
        if (side == Side::Both) continue;
        EXPECT_CLOSE(shape_momentum(T, D, with(gamma, side, Solver::Stacked)), expected, 1e-10) << where;
      }
    }
  }
}

TEST(Shaping, InGramFormEqualsTheLiteralStackedIterationForEverySet) {
  for (const auto& name : Coefficients::names()) {
    for (const auto& [m, n] : kShapes) {
      for (const double gamma : kGammas) {
        for (const Side side : {Side::Left, Side::Right, Side::Short}) {
          const Tensor T = signal(m, n);
          const Tensor D = noise(m, n);
          EXPECT_CLOSE(shape_momentum(T, D, with(gamma, side, Solver::Gram, name)),
                       shape_momentum(T, D, with(gamma, side, Solver::Stacked, name)), 1e-8)
              << name << " " << m << " × " << n << ", γ " << gamma;
        }
      }
    }
  }
}

TEST(Shaping, OnTheSmallerGramEqualsTheDirectForm) {  // n > 2m: the 2m×2m Gram of the stack, against the n×n one
  const Tensor T = signal(3, 24);
  const Tensor D = noise(3, 24);
  const Tensor R = T.mT().matmul(T) + D.mT().matmul(D) * 4;
  const Tensor direct = T.matmul(symmetric_power(R, -0.5));
  EXPECT_CLOSE(shape_momentum(T, D, with(2, Side::Right)), direct, 1e-9);
  EXPECT_CLOSE(shape_momentum(T.mT(), D.mT(), with(2, Side::Left)), direct.mT(), 1e-9);
  const Tensor gram = R / R.trace();
  EXPECT_CLOSE(shape_momentum(T, D, with(2, Side::Right, Solver::Gram, "jordan")),
               T.matmul(gram_iteration(gram, "jordan")) / R.trace().sqrt(), 1e-10);
}

TEST(Shaping, WithoutNoiseIsThePolarFactorBitForBit) {
  for (const auto& [m, n] : kShapes) {
    for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      const Tensor T = signal(m, n).to(type);
      for (const auto solver : {Solver::Gram, Solver::Stacked, Solver::Exact}) {
        const Tensor expected = polar(T, with(0, Side::Short, solver, "jordan").polar);
        for (const Side side : {Side::Short, Side::Left, Side::Right, Side::Both}) {
          EXPECT_SAME(shape_momentum(T, noise(m, n).to(type), with(0, side, solver, "jordan")), expected);
          EXPECT_SAME(shape_momentum(T, Tensor(), with(0, side, solver, "jordan")), expected);
        }
      }
    }
  }
}

TEST(Shaping, ByZeroNoiseIsThePolarFactor) {
  for (const auto& [m, n] : kShapes) {
    const Tensor T = signal(m, n);
    const Tensor D = at::zeros_like(T);
    for (const Side side : kSides) {
      EXPECT_CLOSE(shape_momentum(T, D, with(1, side, Solver::Exact)), svd_polar(T), side == Side::Both ? 1e-7 : 1e-12);
    }
  }
}

TEST(Shaping, ByEverGreaterNoiseTendsToTheNoisesOwnPreconditioner) {  // γO → T(DᵀD)^(−1/2)
  for (const auto& [m, n] : kShapes) {
    const Tensor T = signal(m, n);
    const Tensor D = noise(m, n);
    const Side side = m >= n ? Side::Right : Side::Left;
    const Tensor limit =
        m >= n ? T.matmul(symmetric_power(D.mT().matmul(D), -0.5)) : symmetric_power(D.matmul(D.mT()), -0.5).matmul(T);
    for (const auto solver : {Solver::Gram, Solver::Exact}) {
      EXPECT_CLOSE(shape_momentum(T, D, with(1e6, side, solver)) * 1e6, limit, 1e-9);
    }
  }
}

TEST(Shaping, DampsByTheSignalToNoiseRatioAlongEveryEigenvector) {
  for (const auto& [m, n] : kShapes) {
    const Tensor T = signal(m, n);
    const Tensor D = noise(m, n);
    for (const double gamma : {0.1, 1.0, 10.0}) {
      const auto [lambda, V] = at::linalg_eigh(T.mT().matmul(T) + D.mT().matmul(D) * (gamma * gamma));
      const int64_t k = std::min(2 * m, n);
      const Tensor v = V.narrow(-1, n - k, k);  // the eigenvectors with an eigenvalue above zero
      const Tensor snr = T.matmul(v).norm(2, {-2}) / D.matmul(v).norm(2, {-2});
      const Tensor law = (1 + gamma * gamma / snr.square()).rsqrt();
      EXPECT_CLOSE(shape_momentum(T, D, with(gamma, Side::Right, Solver::Exact)).matmul(v).norm(2, {-2}), law, 1e-9);
      const Tensor left = shape_momentum(T.mT(), D.mT(), with(gamma, Side::Left, Solver::Exact));
      EXPECT_CLOSE(v.mT().matmul(left).norm(2, {-1}), law, 1e-9);
    }
  }
}

TEST(Shaping, ByNewtonSchulzDampsByTheSameLawTimesTheCompositePolynomial) {
  // The stack's singular value σ_k becomes p(σ_k/‖S‖) instead of 1, so ‖Ov_k‖ = (1 + γ²/SNR²)^(−1/2) · p(σ_k/‖S‖).
  const Tensor T = signal(20, 12);
  const Tensor D = noise(20, 12);
  for (const auto& name : Coefficients::names()) {
    const Coefficients set(name);
    const Tensor S = at::cat({T, D * 0.7});
    const auto [U, sigma, Vh] = at::linalg_svd(S, /*full_matrices=*/false);
    Tensor expected = T.matmul(Vh.mT()).norm(2, {-2}) / sigma;
    for (int64_t k = 0; k < 12; ++k) expected[k] *= set((sigma[k] / test::norm_for(set.name(), sigma)).item<double>());
    EXPECT_CLOSE(shape_momentum(T, D, with(0.7, Side::Right, Solver::Gram, set)).matmul(Vh.mT()).norm(2, {-2}),
                 expected, 1e-10);
  }
}

TEST(Shaping, SidesAreResolvedByTheShape) {
  for (const auto& [m, n] : kShapes) {
    EXPECT_EQ(resolved_side(Side::Short, m, n), m >= n ? Side::Right : Side::Left);
    const Side side = m >= n ? Side::Right : Side::Left;
    EXPECT_SAME(shape_momentum(signal(m, n), noise(m, n), with(1)),
                shape_momentum(signal(m, n), noise(m, n), with(1, side)));
  }
  for (const Side side : kSides) EXPECT_EQ(resolved_side(side, 3, 5), side);
  EXPECT_EQ(resolved_side(Side::Inputs, 9, 2), Side::Right);
  EXPECT_EQ(resolved_side(Side::Inputs, 2, 8), Side::Right);
  EXPECT_EQ(resolved_side(Side::Balanced, 9, 2), Side::Right);
  EXPECT_EQ(resolved_side(Side::Balanced, 2, 3), Side::Left);
  EXPECT_EQ(resolved_side(Side::Inputs, 2, 9), Side::Left) << "more than four times as wide as high";
}

TEST(Shaping, BalancedDampsNoiseOfEqualStrengthAsTheRightSide) {
  for (const auto& [m, n] : kShapes) {
    const Tensor T = signal(m, n);
    // Independent noise of variance 0.3: E[DDᵀ] = 0.3n·I, E[DᵀD] = 0.3m·I.
    const Covariance left{0.3 * n * at::eye(m, T.options()), at::ones({1, 1}, T.options())};
    const Covariance right{0.3 * m * at::eye(n, T.options()), at::ones({1, 1}, T.options())};
    EXPECT_CLOSE(shape_with_covariance(T, left, right, with(0.7, Side::Balanced, Solver::Exact)),
                 shape_with_covariance(T, left, right, with(0.7, Side::Right, Solver::Exact)), 1e-12);
    const double gamma = m < n ? 0.7 * std::sqrt(static_cast<double>(m) / static_cast<double>(n)) : 0.7;
    EXPECT_SAME(shape_momentum(T, noise(m, n), with(0.7, Side::Balanced)), shape_momentum(T, noise(m, n), with(gamma)));
  }
}

// A covariance with eigenvalues from 0.2 to 2.
Covariance some_covariance(int64_t n) {
  const Tensor Q = std::get<0>(at::linalg_qr(noise(n, n)));
  return {Q.mul(at::linspace(0.2, 2, n, Q.options())).matmul(Q.mT()), at::full({1, 1}, 0.5, Q.options())};
}

TEST(Whitened, KeepsWideMatricesAndUsesTheRightSideOfOthers) {
  EXPECT_EQ(resolved_side(Side::Whitened, 3, 5), Side::Whitened);
  EXPECT_EQ(resolved_side(Side::Whitened, 3, 12), Side::Whitened);
  EXPECT_EQ(resolved_side(Side::Whitened, 3, 13), Side::Left) << "more than four times as wide as high";
  EXPECT_EQ(resolved_side(Side::Whitened, 5, 5), Side::Right);
  EXPECT_EQ(resolved_side(Side::Whitened, 5, 3), Side::Right);
}

TEST(Whitened, DampsEachSingularValueByTheLaw) {  // σ/√(σ² + γ²) for the singular values σ of T Ĉ^(−1/2)
  const Tensor T = signal(12, 20);
  const Covariance C = some_covariance(20);
  const auto options = with(0.7, Side::Whitened, Solver::Exact);
  const Tensor X = whitened(T, whitening_root(C, options.polar));
  const auto [lambda, V] = at::linalg_eigh(C.C * 0.25);
  EXPECT_CLOSE(X, T.matmul(V.div(lambda.sqrt()).matmul(V.mT())), 1e-12);
  const auto [U, sigma, Wh] = at::linalg_svd(X, /*full_matrices=*/false);
  EXPECT_CLOSE(shape_whitened(X, {}, options), U.mul(sigma / (sigma.square() + 0.49).sqrt()).matmul(Wh), 1e-12);
}

TEST(Whitened, IsTheRightSideForWhiteNoise) {
  const Tensor T = signal(12, 20);
  const Covariance white{at::eye(20, T.options()) * 0.3, at::full({1, 1}, 2., T.options())};
  for (const auto solver : {Solver::Exact, Solver::Gram}) {
    const auto options = with(0.7, Side::Whitened, solver, "converged");
    EXPECT_CLOSE(shape_whitened(whitened(T, whitening_root(white, options.polar)), {}, options),
                 shape_with_covariance(T, {}, white, with(0.7, Side::Right, solver, "converged")), 1e-9);
  }
}

TEST(Whitened, IsTheRightSideWhereNoiseDominates) {  // γ·O → T Ĉ^(−1/2)
  const Tensor T = signal(12, 20);
  const Covariance C = some_covariance(20);
  const auto options = with(1e6, Side::Whitened, Solver::Exact);
  const Tensor X = whitened(T, whitening_root(C, options.polar));
  EXPECT_CLOSE(shape_whitened(X, {}, options) * 1e6, X, 1e-9);
  EXPECT_CLOSE(shape_with_covariance(T, {}, C, with(1e6, Side::Right, Solver::Exact)) * 1e6, X, 1e-9);
  EXPECT_CLOSE(shape_whitened(X, at::full({1, 1}, 0.5, X.options()), options) * 5e5, X, 1e-9) << "γ·factor";
}

TEST(Shaping, OnTheLeftIsTheTransposeOfTheRightOfTheTranspose) {
  for (const auto& [m, n] : kShapes) {
    const Tensor T = signal(m, n);
    const Tensor D = noise(m, n);
    for (const auto solver : {Solver::Gram, Solver::Stacked, Solver::Exact}) {
      EXPECT_CLOSE(shape_momentum(T, D, with(1, Side::Left, solver, "jordan")),
                   shape_momentum(T.mT(), D.mT(), with(1, Side::Right, solver, "jordan")).mT(), 1e-12);
    }
    for (const auto solver : {Solver::Gram, Solver::Exact}) {
      EXPECT_CLOSE(shape_momentum(T, D, with(1, Side::Both, solver)),
                   shape_momentum(T.mT(), D.mT(), with(1, Side::Both, solver)).mT(), 1e-10);
    }
  }
}

TEST(Shaping, IsInvariantUnderScaleAndEquivariantUnderRotation) {
  for (const auto& [m, n] : kShapes) {
    const Tensor T = signal(m, n);
    const Tensor D = noise(m, n);
    const Tensor U = orthogonal(m, 3);
    const Tensor V = orthogonal(n, 4);
    for (const Side side : kSides) {
      for (const auto solver : {Solver::Gram, Solver::Exact}) {
        const auto options = with(1, side, solver, "jordan");
        const Tensor O = shape_momentum(T, D, options);
        EXPECT_CLOSE(shape_momentum(T * 3.7e-5, D * 3.7e-5, options), O, 1e-9);
        EXPECT_CLOSE(shape_momentum(U.matmul(T).matmul(V), U.matmul(D).matmul(V), options), U.matmul(O).matmul(V),
                     1e-9);
        EXPECT_CLOSE(shape_momentum(T, -D, options), O, 1e-12);
        EXPECT_CLOSE(shape_momentum(T, D * 2, with(0.5, side, solver, "jordan")), O, 1e-12);  // only γD matters
      }
    }
  }
}

TEST(Shaping, OfABatchIsThatOfEachMatrix) {
  const Tensor T = random({2, 3, 7, 20}, 5);
  const Tensor D = random({2, 3, 7, 20}, 6);
  for (const Side side : kSides) {
    for (const auto solver : {Solver::Gram, Solver::Stacked, Solver::Exact}) {
      if (side == Side::Both && solver == Solver::Stacked) continue;
      const auto options = with(1, side, solver, "jordan");
      const Tensor O = shape_momentum(T, D, options);
      for (int64_t i = 0; i < 2; ++i) {
        for (int64_t j = 0; j < 3; ++j) EXPECT_CLOSE(O[i][j], shape_momentum(T[i][j], D[i][j], options), 1e-11);
      }
    }
  }
}

TEST(ShapingWithCovariance, OfTheInnovationItselfIsTheInstantForm) {
  for (const auto& [m, n] : kShapes) {
    const Tensor T = signal(m, n);
    const Tensor D = noise(m, n);
    // scale²·C is what counts, not how it is shared out.
    const Covariance left{D.matmul(D.mT()) / 64, at::full({1, 1}, 8.0, at::kDouble)};
    const Covariance right{D.mT().matmul(D) * 16, at::full({1, 1}, 0.25, at::kDouble)};
    for (const double gamma : {0.5, 3.0}) {
      EXPECT_CLOSE(shape_with_covariance(T, left, {}, with(gamma, Side::Left, Solver::Exact)),
                   definition(T, D, gamma, Side::Left), 1e-6);
      EXPECT_CLOSE(shape_with_covariance(T, {}, right, with(gamma, Side::Right, Solver::Exact)),
                   definition(T, D, gamma, Side::Right), 1e-6);
      EXPECT_CLOSE(shape_with_covariance(T, left, right, with(gamma, Side::Both, Solver::Exact)),
                   definition(T, D, gamma, Side::Both), 1e-6);
      EXPECT_CLOSE(shape_with_covariance(T, left, right, with(gamma, Side::Both)), definition(T, D, gamma, Side::Both),
                   1e-6);
      const Side side = resolved_side(Side::Short, m, n);
      EXPECT_CLOSE(shape_with_covariance(T, left, right, with(gamma)), definition(T, D, gamma, side), 1e-9);
      EXPECT_CLOSE(shape_with_covariance(T, left, right, with(gamma, Side::Short, Solver::Gram, "jordan")),
                   shape_momentum(T, D, with(gamma, Side::Short, Solver::Stacked, "jordan")), 1e-10);
    }
  }
}

TEST(Shaping, TheExactUpdateIsAtMostOneBesideACovarianceThatRoundingMadeIndefinite) {
  const Tensor V = orthogonal(6, 3);
  const Tensor sigma = torch::tensor({1.0, 0.5, 0.1, 1e-3, 1e-3, 1e-4}, torch::kFloat64);
  const Tensor T = orthogonal(9, 4).narrow(1, 0, 6).matmul(V.mul(sigma).mT());
  const Tensor lambda = torch::tensor({1.0, 0.3, 0.0, -0.99e-6, -1e-6, -1e-7}, torch::kFloat64);
  const Covariance C{V.mul(lambda).matmul(V.mT()), torch::ones({1, 1}, torch::kFloat64)};
  const Tensor expected = T.matmul(V).div((sigma.square() + lambda.clamp_min(0)).sqrt()).matmul(V.mT());
  EXPECT_CLOSE(shape_with_covariance(T, {}, C, with(1, Side::Right, Solver::Exact)), expected, 1e-6);
  EXPECT_CLOSE(shape_with_covariance(T.mT(), C, {}, with(1, Side::Left, Solver::Exact)), expected.mT(), 1e-6);
}

TEST(ShapingWithCovariance, OfZeroIsThePolarFactor) {
  const Tensor T = signal(10, 6);
  const Covariance none{at::zeros({6, 6}, at::kDouble), at::zeros({1, 1}, at::kDouble)};
  EXPECT_CLOSE(shape_with_covariance(T, {}, none, with(1)), svd_polar(T), 1e-9);
  const Covariance scaled{none.C, at::ones({1, 1}, at::kDouble)};  // the scale of nothing must not drown the signal
  EXPECT_CLOSE(shape_with_covariance((T * 1e-30).to(at::kFloat), {}, scaled, with(1)), svd_polar(T), 1e-4);
}

TEST(ShapingWithCovariance, OfABatchIsThatOfEachMatrix) {
  const Tensor T = random({3, 8, 5}, 7);
  const Tensor D = random({3, 8, 5}, 8);
  const Covariance left{D.matmul(D.mT()), at::tensor({1.0, 2.0, 0.5}, at::kDouble).view({3, 1, 1})};
  const Covariance right{D.mT().matmul(D), at::tensor({2.0, 1.0, 4.0}, at::kDouble).view({3, 1, 1})};
  for (const Side side : kSides) {
    const Tensor O = shape_with_covariance(T, left, right, with(1, side, Solver::Exact));
    for (int64_t i = 0; i < 3; ++i) {
      const Tensor one = shape_with_covariance(T[i], {left.C[i], left.scale[i]}, {right.C[i], right.scale[i]},
                                               with(1, side, Solver::Exact));
      EXPECT_CLOSE(O[i], one, 1e-6);
    }
  }
}

TEST(Tikhonov, DampsEverySingularValueByTheSameConstant) {  // σ → σ/√(σ² + δ), δ = damping · mean σ²
  for (const auto& [m, n] : kShapes) {
    const Tensor T = signal(m, n) * 3e4;
    const auto [U, sigma, Vh] = at::linalg_svd(T, /*full_matrices=*/false);
    for (const double damping : {0.0, 0.01, 1.0, 100.0}) {
      const Tensor delta = sigma.square().mean() * damping;
      const Tensor expected = (U * (sigma / (sigma.square() + delta).sqrt())).matmul(Vh);
      EXPECT_CLOSE(shape_tikhonov(T, damping, with(0, Side::Short, Solver::Exact).polar), expected, 1e-11);
      EXPECT_CLOSE(shape_tikhonov(T, damping, with(0).polar), expected, 1e-9);
    }
  }
}

TEST(Tikhonov, TakesAGivenLambda) {  // σ → σ/√(σ² + λ), whatever the scale of T
  for (const auto& [m, n] : kShapes) {
    for (const double size : {1e-3, 1.0, 1e3}) {
      const Tensor T = signal(m, n) * size;
      const auto [U, sigma, Vh] = at::linalg_svd(T, /*full_matrices=*/false);
      for (const double lambda : {0.0, 0.5}) {
        const Tensor expected = (U * (sigma / (sigma.square() + lambda).sqrt())).matmul(Vh);
        EXPECT_CLOSE(shape_tikhonov_absolute(T, lambda, with(0, Side::Short, Solver::Exact).polar), expected, 1e-9);
        EXPECT_CLOSE(shape_tikhonov_absolute(T, lambda, with(0).polar), expected, 1e-9);
      }
    }
  }
}

TEST(Shaping, LongIsTheSideThatAutoIsNot) {
  for (const auto& [m, n] : kShapes) {
    const Tensor T = signal(m, n), D = noise(m, n);
    const Side other = m >= n ? Side::Left : Side::Right;
    EXPECT_TRUE(shape_momentum(T, D, with(0.7, Side::Long)).equal(shape_momentum(T, D, with(0.7, other))));
    EXPECT_CLOSE(shape_momentum(T, D, with(0.7, Side::Long)), definition(T, D, 0.7, other), 1e-9);
    EXPECT_EQ(resolved_side(Side::Long, m, n), other);
  }
}

TEST(Shaping, RefusesImpossibleSettingsWithAClearMessage) {
  const Tensor T = signal(4, 3);
  const Tensor D = noise(4, 3);
  EXPECT_MESSAGE(shape_momentum(at::zeros({4}), D),
                 "shape_momentum: expected a matrix or a batch of matrices (…, m, n), got shape [4]");
  EXPECT_MESSAGE(shape_momentum(T, D, with(-1)), "shape_momentum: gamma must be finite and 0 or more, got -1");
  EXPECT_MESSAGE(shape_momentum(T, D, with(INFINITY)), "shape_momentum: gamma must be finite and 0 or more, got inf");
  EXPECT_MESSAGE(shape_momentum(T, D, with(NAN)), "shape_momentum: gamma must be finite and 0 or more, got nan");
  EXPECT_MESSAGE(shape_momentum(T, D.mT(), with(1)), "shape_momentum: D must have the shape of T, [4, 3], got [3, 4]");
  EXPECT_MESSAGE(shape_momentum(T, Tensor(), with(1)), "shape_momentum: D must have the shape of T, [4, 3], got []");
  EXPECT_MESSAGE(shape_momentum(T, D, with(1, Side::Both, Solver::Stacked)),
                 "side 'both': solver 'stacked' needs the innovation itself; use 'gram' or 'exact'");

  const Covariance wrong{at::eye(4, at::kDouble), at::ones({1, 1}, at::kDouble)};
  EXPECT_MESSAGE(shape_with_covariance(T, {}, wrong, with(1)),
                 "shape_with_covariance: expected a covariance of 3 columns, got 4");
  EXPECT_MESSAGE(shape_with_covariance(T, {}, wrong, with(1, Side::Left)),
                 "shape_with_covariance: expected a covariance of 4 columns, got 0");
  EXPECT_MESSAGE(shape_with_covariance(T, {}, wrong, with(1, Side::Right, Solver::Stacked)),
                 "covariance: solver 'stacked' needs the innovation itself; use 'gram' or 'exact'");
  EXPECT_MESSAGE(shape_with_covariance(T, {}, wrong, with(-2)),
                 "shape_with_covariance: gamma must be finite and 0 or more, got -2");
  EXPECT_MESSAGE(shape_tikhonov(T, -0.5), "shape_tikhonov: damping must be finite and 0 or more, got -0.5");
  EXPECT_MESSAGE(shape_tikhonov_absolute(T, -0.5),
                 "shape_tikhonov_absolute: damping must be finite and 0 or more, got -0.5");
  EXPECT_MESSAGE(shape_tikhonov(T, 0.5, with(0, Side::Short, Solver::Stacked).polar),
                 "shape_tikhonov: solver 'stacked' needs the innovation itself; use 'gram' or 'exact'");
}

}  // namespace
}  // namespace prism
