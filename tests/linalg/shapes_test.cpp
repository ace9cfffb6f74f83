// Shapes, scales and types at their limits: whatever the solver and side, the update is finite and of the right size.

#include <functional>

#include "prism/linalg/shaping.h"
#include "tests/close.h"
#include "tests/linalg/matrices.h"

namespace prism {
namespace {

using test::random;

struct Case {
  std::string name;
  std::function<Tensor(const Tensor& T, const Tensor& D)> shape;
};

std::vector<Case> cases(const Coefficients& set = "jordan", bool converging = false) {
  std::vector<Case> list;
  const std::vector<std::pair<std::string, Solver>> solvers = {
      {"gram", Solver::Gram}, {"stacked", Solver::Stacked}, {"exact", Solver::Exact}};
  for (const auto& [name, solver] : solvers) {
    const PolarOptions options{.solver = solver, .coefficients = set};
    list.push_back({name + " polar", [=](const Tensor& T, const Tensor&) { return polar(T, options); }});
    for (const auto& [side_name, side] : std::vector<std::pair<std::string, Side>>{
             {" left", Side::Left}, {" right", Side::Right}, {" both", Side::Both}, {" auto", Side::Short}}) {
      if (solver == Solver::Stacked && side == Side::Both) continue;
      const ShapingOptions shaping{.gamma = 1, .side = side, .polar = options};
      list.push_back(
          {name + side_name, [=](const Tensor& T, const Tensor& D) { return shape_momentum(T, D, shaping); }});
    }
    if (solver == Solver::Stacked || converging) continue;
    list.push_back(
        {name + " tikhonov", [=](const Tensor& T, const Tensor&) { return shape_tikhonov(T, 0.1, options); }});
  }
  return list;
}

TEST(Shapes, EmptyMatricesStayEmpty) {
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{0, 5}, {5, 0}, {0, 0}, {0, 4, 5}, {3, 0, 5}, {3, 5, 0}, {2, 0, 4, 5}}) {
    for (const auto& [name, apply] : cases()) {
      const Tensor X = at::zeros(shape);
      EXPECT_SAME(apply(X, X), X) << name;
    }
  }
}

TEST(Shapes, RowsAndColumnsBecomeUnitVectors) {
  for (const auto& [m, n] : std::vector<std::pair<int64_t, int64_t>>{{1, 40}, {40, 1}, {1, 1}, {1, 2}, {2, 1}}) {
    const Tensor T = random({m, n}, 1).to(at::kFloat);
    for (const auto& [name, apply] : cases(Coefficients("converged").with_steps(12), /*converging=*/true)) {
      EXPECT_CLOSE(apply(T, at::zeros_like(T)), T / T.norm(), 1e-3) << name << " " << m << " × " << n;
    }
  }
}

TEST(Shapes, ZeroMatricesGiveZero) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{6, 4}, {4, 6}, {2, 20}, {20, 2}, {3, 5, 5}, {1, 1}}) {
    const Tensor zero = at::zeros(shape);
    for (const auto& [name, apply] : cases()) {
      EXPECT_SAME(apply(zero, zero), zero) << name;
      EXPECT_CLOSE(apply(zero, random(shape).to(at::kFloat)), zero, 1e-13) << name;
    }
  }
}

TEST(Shapes, AZeroMatrixInABatchLeavesTheOthersAlone) {
  Tensor T = random({3, 6, 4}, 2);
  Tensor D = random({3, 6, 4}, 3);
  T[1].zero_();
  D[1].zero_();
  for (const auto& [name, apply] : cases()) {
    const Tensor O = apply(T, D);
    EXPECT_SAME(O[1], at::zeros_like(O[1])) << name;
    for (const int64_t i : {0, 2}) EXPECT_CLOSE(O[i], apply(T[i], D[i]), 1e-9) << name;
  }
}

TEST(Shapes, RankDeficientMatricesKeepTheirRange) {
  for (const int64_t rank : {1, 3}) {
    for (const auto& [m, n] : std::vector<std::pair<int64_t, int64_t>>{{24, 16}, {16, 24}, {16, 16}, {6, 40}}) {
      const Tensor T = random({m, rank}, 4).matmul(random({rank, n}, 5));
      for (const auto& [name, apply] : cases("converged", /*converging=*/true)) {
        const bool exact = name.find("exact") == 0;  // in float32 even rounding's rank would count
        const Tensor X = exact ? T : T.to(at::kFloat);
        EXPECT_CLOSE(apply(X, at::zeros_like(X)), test::svd_polar(T), exact ? 1e-6 : 2e-2)
            << name << " " << m << " × " << n;
      }
    }
  }
}

TEST(Shapes, NothingDependsOnTheScale) {
  for (const auto& [m, n] : std::vector<std::pair<int64_t, int64_t>>{{12, 8}, {8, 12}, {3, 20}}) {
    const Tensor T = random({m, n}, 6).to(at::kFloat);
    const Tensor D = random({m, n}, 7).to(at::kFloat);
    for (const auto& [name, apply] : cases()) {
      const Tensor O = apply(T, D);
      for (const double scale : {1e30, 1e-30, 1e37, 1e-36}) {
        EXPECT_CLOSE(apply(T * scale, D * scale), O, 5e-4) << name << " " << scale;
      }
      for (const double power : {std::ldexp(1, 100), std::ldexp(1, -100)}) {  // exact, so bit for bit
        EXPECT_SAME(apply(T * power, D * power), O) << name;
      }
      for (const double scale : {1e200, 1e-200, 1e-300}) {
        const Tensor wide = apply(T.to(at::kDouble) * scale, D.to(at::kDouble) * scale);
        EXPECT_CLOSE(wide, apply(T.to(at::kDouble), D.to(at::kDouble)), 1e-9) << name << " " << scale;
      }
    }
  }
}

TEST(Shapes, DenormalNumbersAreShapedLikeAnyOther) {
  const Tensor T = (random({12, 8}, 8) * 1e-40).to(at::kFloat);
  const Tensor D = (random({12, 8}, 9) * 1e-40).to(at::kFloat);
  ASSERT_LT(T.abs().max().item<float>(), std::numeric_limits<float>::min());
  for (const auto& [name, apply] : cases()) {
    EXPECT_CLOSE(apply(T, D), apply(T.to(at::kDouble) * 1e40, D.to(at::kDouble) * 1e40), 1e-4) << name;
  }
}

TEST(Shapes, SignalAndNoiseOfDifferentMagnitudeStayFinite) {
  const Tensor T = random({12, 8}, 10).to(at::kFloat);
  for (const auto& [name, apply] : cases()) {
    for (const double ratio : {1e-30, 1e-10, 1e10, 1e30}) {
      const Tensor O = apply(T, random({12, 8}, 11).to(at::kFloat) * ratio);
      EXPECT_TRUE(O.isfinite().all().item<bool>()) << name << " " << ratio;
      EXPECT_LE(O.abs().max().item<double>(), 1.21) << name << " " << ratio;
    }
  }
}

TEST(Shapes, BatchesMayMixMagnitudes) {
  const Tensor T = random({4, 12, 8}, 12).to(at::kFloat);
  const Tensor D = random({4, 12, 8}, 13).to(at::kFloat);
  const Tensor scale = at::tensor({1.0, 1e30, 1e-30, 1e-3}).view({4, 1, 1}).to(at::kFloat);
  for (const auto& [name, apply] : cases()) EXPECT_CLOSE(apply(T * scale, D * scale), apply(T, D), 5e-4) << name;
}

TEST(Shapes, NarrowTypesAreComputedInFloat32AndKept) {
  const Tensor T = random({12, 8}, 14);
  const Tensor D = random({12, 8}, 15);
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    for (const auto& [name, apply] : cases()) {
      const Tensor narrow = apply(T.to(type), D.to(type));
      EXPECT_EQ(narrow.scalar_type(), type) << name;
      const Tensor wide = apply(T.to(type).to(at::kFloat), D.to(type).to(at::kFloat));
      if (name.find("stacked") == 0) {  // the literal iteration, in the type itself
        EXPECT_CLOSE(narrow, wide, 0.1) << name;
      } else {
        EXPECT_SAME(narrow, wide.to(type)) << name;
      }
    }
  }
}

TEST(Shapes, LargeHalfPrecisionNumbersDoNotVanish) {  // the nearest power of two of 60000 is no fp16 number
  const Tensor T = (random({12, 8}, 16) / 4).clamp(-1, 1).mul(60000).to(at::kHalf);
  for (const auto& [name, apply] : cases()) {
    EXPECT_CLOSE(apply(T, at::zeros_like(T)), apply(T / 4096, at::zeros_like(T)), 0.05) << name;
    EXPECT_GT(apply(T, at::zeros_like(T)).abs().max().item<double>(), 0.1) << name;
  }
}

TEST(Shapes, StridedInputIsReadRightAndLeftUntouched) {
  const Tensor T = random({3, 16, 10}, 17);
  const Tensor D = random({3, 16, 10}, 18);
  const auto transposed = [](const Tensor& X) { return X.mT().contiguous().mT(); };
  const auto sparse = [](const Tensor& X) {
    Tensor wide = at::full({3, 32, 20}, 1e9, at::kDouble).slice(1, 0, 32, 2).slice(2, 1, 20, 2);
    return wide.copy_(X);
  };
  for (const auto& [name, apply] : cases()) {
    const Tensor O = apply(T, D);
    for (const auto& view : std::vector<std::function<Tensor(const Tensor&)>>{transposed, sparse}) {
      const Tensor X = view(T);
      const Tensor N = view(D);
      EXPECT_CLOSE(apply(X, N), O, 1e-10) << name;
      EXPECT_SAME(X, T) << name;
      EXPECT_SAME(N, D) << name;
    }
  }
}

TEST(Shapes, TheGpuGivesWhatTheCpuGives) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no CUDA device";
  const Tensor T = random({3, 48, 32}, 19);
  const Tensor D = random({3, 48, 32}, 20);
  for (const auto& [name, apply] : cases()) {
    EXPECT_CLOSE(apply(T.to(at::kCUDA), D.to(at::kCUDA)).cpu(), apply(T, D), 1e-9) << name;
  }
}

}  // namespace
}  // namespace prism
