#include "prism/linalg/sketch.h"

#include "tests/close.h"
#include "tests/linalg/matrices.h"

namespace prism {
namespace {

using test::gram_of;
using test::orthogonal;
using test::random;

Covariance empty_average(at::IntArrayRef batch, int64_t n, at::ScalarType type) {
  auto matrix = batch.vec();
  auto number = batch.vec();
  matrix.insert(matrix.end(), {n, n});
  number.insert(number.end(), {1, 1});
  return {at::zeros(matrix, type), at::zeros(number, type)};
}

Sketch empty_sketch(at::IntArrayRef batch, int64_t r, int64_t n, at::ScalarType type) {
  auto matrix = batch.vec();
  auto number = batch.vec();
  matrix.insert(matrix.end(), {r, n});
  number.insert(number.end(), {1, 1});
  return {at::zeros(matrix, type), at::zeros(number, type)};
}

Tensor dense(const Covariance& covariance) {  // scale²·C in float64
  return covariance.C.to(at::kDouble) * covariance.scale.to(at::kDouble).square();
}
Tensor dense(const Sketch& sketch) { return dense(sketch_covariance(sketch)); }

// The definition, on dense float64 matrices: the top r eigenpairs, and the mean of the others in the complement.
Tensor truncated(const Tensor& C, int64_t r) {
  const auto [U, lambda, Vh] = at::linalg_svd(C);
  const int64_t n = C.size(-1);
  Tensor kept = lambda.clone();
  if (r < n) kept.narrow(-1, r, n - r).copy_(lambda.narrow(-1, r, n - r).mean(-1, true).expand({n - r}));
  return (Vh.mT() * kept).matmul(Vh);
}

TEST(AverageUpdate, IsThePlainRecursion) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    const double tolerance = type == at::kDouble ? 1e-13 : 1e-5;
    Covariance average = empty_average({2}, 6, type);
    Tensor expected = at::zeros({2, 6, 6}, at::kDouble);
    for (uint64_t t = 0; t < 20; ++t) {
      const Tensor D = random({2, 9, 6}, t);
      average_update(average, D.to(type), 0.9);
      expected = 0.9 * expected + 0.1 * gram_of(D);
      EXPECT_CLOSE(dense(average), expected, tolerance) << t;
    }
  }
}

TEST(AverageUpdate, WithoutMemoryIsTheInstantCovariance) {
  Covariance average = empty_average({}, 5, at::kDouble);
  for (uint64_t t = 0; t < 3; ++t) {
    const Tensor D = random({4, 5}, t);
    average_update(average, D, 0);
    EXPECT_CLOSE(dense(average), gram_of(D), 1e-14);
  }
}

TEST(AverageUpdate, NeitherOverflowsNorVanishes) {
  const std::vector<std::vector<double>> sequences = {{1e30, 1e30, 1e30}, {1e-30, 1e-30, 1e-30}, {1e-30, 1, 1e30},
                                                      {1e30, 1, 1e-30},   {1e30, 0, 1e30},       {1e-42, 1e-42},
                                                      {3e37, 3e37}};
  for (const auto& scales : sequences) {
    Covariance average = empty_average({}, 5, at::kFloat);
    Tensor expected = at::zeros({5, 5}, at::kDouble);
    for (size_t t = 0; t < scales.size(); ++t) {
      const Tensor D = (random({7, 5}, t) * scales[t]).to(at::kFloat);
      average_update(average, D, 0.9);
      expected = 0.9 * expected + 0.1 * gram_of(D.to(at::kDouble));
      const Tensor magnitude = expected.abs().max();
      EXPECT_CLOSE(dense(average) / magnitude, expected / magnitude, 1e-5) << scales << " step " << t;
      EXPECT_TRUE(average.C.isfinite().all().item<bool>());
    }
  }
}

TEST(AverageUpdate, OfZerosStaysZero) {
  Covariance average = empty_average({2}, 4, at::kFloat);
  average_update(average, at::zeros({2, 3, 4}), 0.9);
  EXPECT_SAME(average.C, at::zeros({2, 4, 4}));
  EXPECT_TRUE(average.scale.isfinite().all().item<bool>());
}

TEST(AverageUpdate, KeepsItsStateInPlace) {
  Covariance average = empty_average({}, 4, at::kFloat);
  const void* address = average.C.data_ptr();
  average_update(average, random({3, 4}).to(at::kBFloat16), 0.5);
  EXPECT_EQ(average.C.data_ptr(), address);
  EXPECT_EQ(average.C.scalar_type(), at::kFloat);
}

// Promises that both ways to keep the top of an average make.
class LowRankAverage : public ::testing::TestWithParam<void (*)(Sketch&, const Tensor&, double)> {
 protected:
  void update(Sketch& sketch, const Tensor& D, double beta) { GetParam()(sketch, D, beta); }
};

INSTANTIATE_TEST_SUITE_P(Of, LowRankAverage, ::testing::Values(sketch_update, subspace_update),
                         [](const auto& tested) { return tested.param == sketch_update ? "Sketch" : "Subspace"; });

TEST_P(LowRankAverage, OfFullRankIsTheDenseAverage) {
  Sketch sketch = empty_sketch({2}, 6, 6, at::kDouble);
  Covariance average = empty_average({2}, 6, at::kDouble);
  for (uint64_t t = 0; t < 10; ++t) {
    const Tensor D = random({2, t < 5 ? 3 : 9, 6}, t);  // of low rank at first
    update(sketch, D, 0.9);
    average_update(average, D, 0.9);
    EXPECT_CLOSE(dense(sketch), dense(average), 1e-12) << t;
  }
  EXPECT_SAME(sketch.tail, at::zeros({2, 1, 1}, at::kDouble));
}

TEST_P(LowRankAverage, WithoutMemoryIsTheInstantCovariance) {
  for (const int64_t rank : {3, 5}) {  // D has rank 3: nothing is cut
    Sketch sketch = empty_sketch({}, rank, 5, at::kDouble);
    for (uint64_t t = 0; t < 3; ++t) {
      const Tensor D = random({3, 5}, t);
      update(sketch, D, 0);
      EXPECT_CLOSE(dense(sketch), gram_of(D), GetParam() == sketch_update ? 1e-12 : 1e-11) << rank;
    }
  }
}

TEST_P(LowRankAverage, KeepsTheTraceAndLeavesNoDirectionUndamped) {
  for (const int64_t rank : {1, 4, 7}) {
    Sketch sketch = empty_sketch({}, rank, 8, at::kDouble);
    Tensor average = at::zeros({8, 8}, at::kDouble);
    for (uint64_t t = 0; t < 30; ++t) {
      const Tensor D = random({12, 8}, t);  // nearly equal eigenvalues: the hardest to cut
      update(sketch, D, 0.9);
      average = 0.9 * average + 0.1 * gram_of(D);
      EXPECT_CLOSE(dense(sketch).trace(), average.trace(), 1e-12);
      const double least = at::linalg_eigvalsh(dense(sketch)).min().item<double>();
      EXPECT_GT(least, 0.5 * at::linalg_eigvalsh(average).min().item<double>()) << rank << " " << t;
    }
  }
}

TEST_P(LowRankAverage, NeitherOverflowsNorVanishes) {
  for (const double scale : {1e30, 1e-30, 3e37, 1e-37}) {
    Sketch sketch = empty_sketch({}, 2, 5, at::kFloat);
    Sketch plain = empty_sketch({}, 2, 5, at::kDouble);
    for (uint64_t t = 0; t < 4; ++t) {
      const Tensor D = random({7, 5}, t);
      update(sketch, (D * scale).to(at::kFloat), 0.9);
      update(plain, D, 0.9);
      EXPECT_CLOSE(dense(sketch) / (scale * scale), dense(plain), 1e-4) << scale;
    }
  }
  Sketch zero = empty_sketch({2}, 3, 5, at::kFloat);
  update(zero, at::zeros({2, 4, 5}), 0.9);
  EXPECT_SAME(zero.F, at::zeros({2, 3, 5}));
  EXPECT_SAME(zero.tail, at::zeros({2, 1, 1}));
}

TEST(Sketch, IsTheTopOfTheAverageWithTheRestAsAnIsotropicTail) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    for (const int64_t rank : {1, 3, 7}) {
      Sketch sketch = empty_sketch({}, rank, 8, type);
      Tensor expected = at::zeros({8, 8}, at::kDouble);
      for (uint64_t t = 0; t < 12; ++t) {
        const Tensor D = random({11, 8}, t) * at::arange(1, 9, at::kDouble);
        sketch_update(sketch, D.to(type), 0.8);
        expected = truncated(0.8 * expected + 0.2 * gram_of(D), rank);
        EXPECT_CLOSE(dense(sketch), expected, type == at::kDouble ? 1e-11 : 1e-4) << rank << " " << t;
      }
    }
  }
}

TEST(Sketch, OfEqualEigenvaluesIsIsotropic) {
  Sketch sketch = empty_sketch({}, 2, 6, at::kDouble);
  for (int t = 0; t < 50; ++t) {
    sketch_update(sketch, orthogonal(6, 1), 0.9);
    EXPECT_CLOSE(dense(sketch), at::eye(6, at::kDouble) * (1 - std::pow(0.9, t + 1)), 1e-12) << t;
  }
}

TEST(Sketch, FollowsTheDenseAverageOverManySteps) {
  const int64_t n = 16;
  const Tensor W = orthogonal(n, 2) / at::arange(1, n + 1, at::kDouble).unsqueeze(1);
  Sketch sketch = empty_sketch({}, 4, n, at::kFloat);
  Tensor average = at::zeros({n, n}, at::kDouble);
  for (uint64_t t = 0; t < 300; ++t) {
    const Tensor D = random({24, n}, t).matmul(W);
    sketch_update(sketch, D.to(at::kFloat), 0.99);
    average = 0.99 * average + 0.01 * gram_of(D);
  }
  EXPECT_LT(test::relative_error(dense(sketch), average),
            0.1);  // the tail's share; shrinking the kept ones each step gave 1.0
}

TEST(Subspace, ConvergesToTheEigenpairsOfAConstantCovariance) {
  const int64_t n = 16, r = 4;
  const Tensor D = orthogonal(n, 2) / at::arange(1, n + 1, at::kDouble).unsqueeze(1);
  Sketch sketch = empty_sketch({}, r, n, at::kDouble);
  for (int t = 0; t < 400; ++t) subspace_update(sketch, D, 0.5);
  EXPECT_CLOSE(dense(sketch), truncated(gram_of(D), r), 1e-10);
}

// On decaying spectra the error is that of the truncation: hardly above the eigendecomposition's, also after the
// covariance has turned to other directions.
TEST(Subspace, FollowsTheDenseAverageAsWellAsTheEigendecomposition) {
  const int64_t n = 48;
  for (const double power : {1.0, 2.0}) {
    for (const int64_t r : {4, 12}) {
      Sketch exact = empty_sketch({}, r, n, at::kFloat), tracked = empty_sketch({}, r, n, at::kFloat);
      Tensor average = at::zeros({n, n}, at::kDouble);
      for (uint64_t t = 0; t < 600; ++t) {
        const Tensor W = orthogonal(n, t < 300 ? 2 : 3) / at::arange(1, n + 1, at::kDouble).pow(power).unsqueeze(1);
        const Tensor D = random({64, n}, t).matmul(W).to(at::kFloat);
        sketch_update(exact, D, 0.99);
        subspace_update(tracked, D, 0.99);
        average = 0.99 * average + 0.01 * gram_of(D.to(at::kDouble));
        if (t == 29 || t == 299 || t == 599) {
          const double cut = test::relative_error(dense(exact), average);
          const double error = test::relative_error(dense(tracked), average);
          EXPECT_LT(error, 1.2 * cut) << power << " " << r << " " << t;
        }
      }
    }
  }
}

TEST(Sketch, ShapesLikeTheDenseMatrixItStandsFor) {
  Sketch sketch = empty_sketch({}, 2, 6, at::kDouble);
  for (uint64_t t = 0; t < 5; ++t) sketch_update(sketch, random({9, 6}, t), 0.9);
  const Tensor T = random({9, 6}, 9);
  const ShapingOptions options{.gamma = 1.3, .side = Side::Right, .polar = {.solver = Solver::Exact}};
  const Tensor R = gram_of(T) + dense(sketch) * (1.3 * 1.3);
  EXPECT_CLOSE(shape_with_covariance(T, {}, sketch_covariance(sketch), options),
               T.matmul(test::symmetric_power(R, -0.5)), 1e-11);
}

TEST(Sketch, RefusesWhatDoesNotFit) {
  Sketch sketch = empty_sketch({}, 2, 5, at::kFloat);
  EXPECT_MESSAGE(sketch_update(sketch, at::zeros({3, 4}), 0.9),
                 "sketch_update: expected D with 5 columns and a rank from 1 to 5, got D of shape [3, 4] and rank 2");
  Sketch wide = empty_sketch({}, 6, 5, at::kFloat);
  EXPECT_MESSAGE(sketch_update(wide, at::zeros({3, 5}), 0.9),
                 "sketch_update: expected D with 5 columns and a rank from 1 to 5, got D of shape [3, 5] and rank 6");
  EXPECT_MESSAGE(subspace_update(wide, at::zeros({3, 5}), 0.9),
                 "subspace_update: expected D with 5 columns and a rank from 1 to 5, got D of shape [3, 5] and rank 6");
  EXPECT_MESSAGE(sketch_update(sketch, at::zeros({5}), 0.9), "sketch_update: expected a matrix");
  Covariance average = empty_average({}, 5, at::kFloat);
  EXPECT_MESSAGE(average_update(average, at::zeros({3, 4}), 0.9),
                 "average_update: expected D with 5 columns, got D of shape [3, 4]");
  EXPECT_MESSAGE(average_update(average, at::zeros({5}), 0.9), "average_update: expected a matrix");
}

}  // namespace
}  // namespace prism
