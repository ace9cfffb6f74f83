#include "prism/linalg/batch.h"

#include "tests/close.h"
#include "tests/linalg/matrices.h"

namespace prism {
namespace {

using test::random;

TEST(Eigh, OfAMatrixThatIsNotFiniteIsNaNAndOthersAreUntouched) {
  const Tensor X = random({2, 3, 5, 5});
  const auto [lambda, V] = eigh(X);
  EXPECT_CLOSE((V * lambda.unsqueeze(-2)).matmul(V.mT()), symmetrized(X), 1e-13);
  for (const double poison : {NAN, INFINITY}) {
    const Tensor bad = X.clone();
    bad[1][2][3][4] = poison;
    const auto [values, vectors] = eigh(bad);
    const auto others = [](const Tensor& Y) { return Y.flatten(0, 1).narrow(0, 0, 5); };
    EXPECT_SAME(others(values), others(lambda));
    EXPECT_SAME(others(vectors), others(V));
    EXPECT_TRUE(values[1][2].isnan().all().item<bool>() && vectors[1][2].isnan().all().item<bool>());
  }
}

TEST(ThinSvd, OfAMatrixThatIsNotFiniteIsNaNAndOthersAreUntouched) {
  const Tensor X = random({2, 6, 4});
  const auto [U, sigma, Vh] = thin_svd(X);
  EXPECT_CLOSE((U * sigma.unsqueeze(-2)).matmul(Vh), X, 1e-13);
  Tensor bad = X.clone();
  bad[1][2][3] = INFINITY;
  const auto [left, values, right] = thin_svd(bad);
  EXPECT_SAME(left[0], U[0]);
  EXPECT_SAME(values[0], sigma[0]);
  EXPECT_SAME(right[0], Vh[0]);
  for (const Tensor& part : {left[1], values[1], right[1]}) EXPECT_TRUE(part.isnan().all().item<bool>());
}

TEST(LargestMagnitude, IsTheLargestAbsoluteValueOfEachMatrix) {
  Tensor X = random({2, 3, 4, 5});
  X[1][2][3][4] = -17;
  EXPECT_SAME(largest_magnitude(X), X.abs().amax({-2, -1}, true));
  EXPECT_SAME(largest_magnitude(X.to(at::kFloat)), X.to(at::kFloat).abs().amax({-2, -1}, true).to(at::kDouble));
}

TEST(LargestMagnitude, OfEmptyMatricesIsZero) {
  EXPECT_SAME(largest_magnitude(at::empty({3, 0, 5})), at::zeros({3, 1, 1}, at::kDouble));
  EXPECT_SAME(largest_magnitude(at::empty({5, 0})), at::zeros({1, 1}, at::kDouble));
  EXPECT_SAME(largest_magnitude(at::empty({0, 4, 5})), at::zeros({0, 1, 1}, at::kDouble));
}

TEST(NearestPowerOfTwo, IsWithinAFactorOfTheSquareRootOfTwo) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    const Tensor x = at::logspace(-37.5, 37.5, 4001, 10, at::kDouble);
    const Tensor power = nearest_power_of_two(x, type);
    EXPECT_SAME(std::get<0>(at::frexp(power)), at::full_like(x, 0.5));  // each is exactly a power of two
    const Tensor ratio = x / power;
    EXPECT_GE(ratio.min().item<double>(), std::sqrt(0.5) * (1 - 1e-15));
    EXPECT_LE(ratio.max().item<double>(), std::sqrt(2.0) * (1 + 1e-15));
  }
}

TEST(NearestPowerOfTwo, StaysAmongTheNormalNumbersOfTheType) {
  const Tensor x = at::tensor({0.0, 5e-324, 1e-310, 1e-45, 3.4e38, 1e300}, at::kDouble);
  for (const auto type : {at::kFloat, at::kDouble}) {
    const Tensor power = nearest_power_of_two(x, type);
    EXPECT_SAME(std::get<0>(at::frexp(power)), at::full_like(x, 0.5));
    const Tensor narrow = power.to(type);
    const double smallest =
        type == at::kDouble ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
    EXPECT_TRUE(narrow.isfinite().all().item<bool>()) << narrow;
    EXPECT_TRUE(narrow.ge(smallest).all().item<bool>()) << narrow;
    EXPECT_SAME(narrow.to(at::kDouble), power);
  }
}

TEST(GramScale, IsOneUnlessTheSquaresComeNearALimit) {
  const Tensor ordinary = at::tensor({0.0, 1e-11, 3.0, 1e11}, at::kDouble);
  for (const auto type : {at::kBFloat16, at::kFloat, at::kDouble}) {
    EXPECT_SAME(gram_scale(ordinary, type), at::ones_like(ordinary));
    for (const double far : {1e-30, 1e30}) {
      const Tensor x = at::tensor({3.0, far}, at::kDouble);
      EXPECT_SAME(gram_scale(x, type), nearest_power_of_two(x, type));
    }
  }
  // The squares of halves overflow at 256.
  EXPECT_SAME(gram_scale(ordinary, at::kHalf), nearest_power_of_two(ordinary, at::kHalf));
}

TEST(Divided, IsExactAlsoWhereTheScaleIsNoNumberOfTheType) {
  const Tensor X = at::tensor({60000.0F, -3.0F}).view({1, 2}).to(at::kHalf);
  EXPECT_SAME(divided(X, at::full({1, 1}, 65536.0, at::kDouble), at::kHalf), (X.to(at::kFloat) / 65536).to(at::kHalf));
}

TEST(Symmetrized, IsHalfTheSumWithTheTranspose) {
  const Tensor A = random({2, 5, 5});
  EXPECT_CLOSE(symmetrized(A), (A + A.mT()) / 2, 0.0);
}

TEST(NonzeroOrOne, ReplacesZerosOnly) {
  EXPECT_SAME(nonzero_or_one(at::tensor({0.0, -2.0, 1e-300})), at::tensor({1.0, -2.0, 1e-300}));
}

TEST(CheckMatrix, SaysWhatWasExpectedAndWhatCame) {
  EXPECT_MESSAGE(check_matrix("polar", Tensor()),
                 "polar: expected a matrix or a batch of matrices, got an undefined tensor");
  EXPECT_MESSAGE(check_matrix("polar", at::zeros({3})),
                 "polar: expected a matrix or a batch of matrices (…, m, n), got shape [3]");
  EXPECT_MESSAGE(check_matrix("polar", at::zeros({3, 2}, at::kLong)),
                 "polar: expected floating-point numbers, got Long");
}

}  // namespace
}  // namespace prism
