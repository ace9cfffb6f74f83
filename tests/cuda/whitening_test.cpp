// Whole steps of whitened matrices without torch, compared with the same polynomials in float64
// (prism/linalg/shaping.h, `shape_whitened`).

#include <array>
#include <cmath>
#include <optional>

#include "tests/cuda/dense.h"
#include "tests/cuda/device.h"

namespace prism::cuda::test {
namespace {

constexpr int kCount = 2;  // matrices of each shape

// Wide matrices with the state of a run of some steps, on the device.
struct Problem {
  struct Memory {
    DeviceArray<float> G, W, M, C, C_scale, root, root_scale, step;
  };
  std::vector<std::array<int64_t, 2>> shapes;
  std::vector<Memory> memory;
  std::vector<MatrixStack> stacks;

  explicit Problem(const std::vector<std::array<int64_t, 2>>& shapes_, float steps_taken = 8) : shapes(shapes_) {
    unsigned seed = 0;
    for (const auto& [m, n] : shapes) {
      const size_t size = m * n, square = n * n;
      std::vector<float> C;
      for (int b = 0; b < kCount; ++b) {
        const auto one = covariance(n, ++seed);
        C.insert(C.end(), one.begin(), one.end());
      }
      Memory one{DeviceArray<float>(normal(kCount * size, ++seed)),
                 DeviceArray<float>(normal(kCount * size, ++seed)),
                 DeviceArray<float>(normal(kCount * size, ++seed)),
                 DeviceArray<float>(C),
                 DeviceArray<float>(std::vector<float>(kCount, 2)),
                 DeviceArray<float>(std::vector<float>(kCount * square)),
                 DeviceArray<float>(std::vector<float>(kCount)),
                 DeviceArray<float>(std::vector<float>(kCount, steps_taken))};
      MatrixStack stack{.m = m, .n = n, .left = true, .whitened = true};
      for (int b = 0; b < kCount; ++b) {
        stack.G.push_back(one.G.data() + b * size);
        stack.W.push_back(one.W.data() + b * size);
        stack.M.push_back(one.M.data() + b * size);
        stack.C.push_back(one.C.data() + b * square);
        stack.C_scale.push_back(one.C_scale.data() + b);
        stack.root.push_back(one.root.data() + b * square);
        stack.root_scale.push_back(one.root_scale.data() + b);
        stack.step.push_back(one.step.data() + b);
      }
      memory.push_back(std::move(one));
      stacks.push_back(std::move(stack));
    }
  }

  // NᵀN/4n for random N with 2n rows, some columns of which are ten times as noisy.
  static std::vector<float> covariance(int64_t n, unsigned seed) {
    const auto numbers = normal(2 * n * n, seed);
    std::vector<float> C(n * n);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t r = 0; r < 2 * n; ++r) sum += double{numbers[r * n + i]} * numbers[r * n + j];
        C[i * n + j] = static_cast<float>(sum / (4. * n) * (i % 4 == 0 ? 10 : 1) * (j % 4 == 0 ? 10 : 1));
      }
    }
    return C;
  }

  void step(const SpectralRule& rule, const StepScalars& scalars = {.lr = {.value = 1}}) {
    std::optional<DeviceArray<char>> scratch;
    // Scratch memory holds NaN at first: what the step reads, it must have written.
    const auto allocate = [&](size_t bytes) -> void* {
      return scratch.emplace(std::vector<char>(bytes, '\xff')).data();
    };
    ASSERT_CUDA(spectral_step(rule, scalars, stacks, allocate, 0, nullptr));
    ASSERT_CUDA(cudaDeviceSynchronize());
  }
};

using Fields = std::vector<DeviceArray<float> Problem::Memory::*>;
const Fields kState = {&Problem::Memory::W,       &Problem::Memory::M,    &Problem::Memory::C,
                       &Problem::Memory::C_scale, &Problem::Memory::root, &Problem::Memory::root_scale,
                       &Problem::Memory::step};

SpectralRule rule_of(const std::vector<GramStep>& steps, int64_t covariance_every = 1, int64_t root_every = 1) {
  const bool minimax = steps.size() == 3;
  return {.noisy = true,
          .gamma = {.value = 0.5},
          .averaged = true,
          .covariance_beta = 0.9,
          .covariance_every = covariance_every,
          .root_every = root_every,
          .steps = steps,
          .bound = minimax ? 1.05 : 1,
          .by_norm = minimax};
}

// One matrix and its state in float64.
struct Reference {
  Dense M, C, root;  // C = Ĉ without bias correction, root = Ĉ^(−1/2)
  double step;

  Dense update(const SpectralRule& rule, const std::vector<float>& G) {
    const size_t m = M.rows, n = M.columns;
    Dense T(m, n), D(m, n);
    for (size_t i = 0; i < G.size(); ++i) {
      M.x[i] = rule.momentum * M.x[i] + (1 - rule.momentum) * G[i];
      T.x[i] = (1 - rule.momentum) * G[i] + rule.momentum * M.x[i];
      D.x[i] = G[i] - M.x[i];
    }
    step += 1;
    const auto every = static_cast<double>(rule.covariance_every);
    const auto is_due = [&](double k) { return std::fmod(step - 1, k) == 0; };
    if (is_due(every)) {
      const double kept = std::pow(rule.covariance_beta, every);
      const Dense now = product(transposed(D), D);
      for (size_t i = 0; i < C.x.size(); ++i) C.x[i] = kept * C.x[i] + (1 - kept) * now.x[i];
    }
    if (is_due(static_cast<double>(rule.root_every))) {
      Dense corrected = C;
      for (double& c : corrected.x) c /= 1 - std::pow(rule.covariance_beta, std::ceil(step / every) * every);
      auto [Q, size] = inverse_root(rule, corrected);
      root = Q;
      for (double& r : root.x) r /= std::sqrt(size);
    }
    const Dense X = product(T, root);
    Dense R = product(X, transposed(X));
    for (size_t i = 0; i < m; ++i) R(i, i) += rule.gamma.value * rule.gamma.value;
    const auto [Q, size] = inverse_root(rule, R);
    Dense O = product(Q, X);
    for (double& o : O.x) o /= std::sqrt(size);
    return O;
  }
};

Dense dense(int64_t m, int64_t n, const std::vector<float>& values, double scale = 1) {
  Dense result(m, n);
  for (size_t i = 0; i < result.x.size(); ++i) result.x[i] = scale * values[i];
  return result;
}

// ‖before − after − O‖/‖O‖ of the first matrix.
double error_of(const std::vector<float>& before, const std::vector<float>& after, const Dense& O) {
  double apart = 0, size = 0;
  for (size_t i = 0; i < O.x.size(); ++i) {
    apart += std::pow(double{before[i]} - after[i] - O.x[i], 2);
    size += std::pow(O.x[i], 2);
  }
  return std::sqrt(apart / size);
}

class WhitenedStep : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_device()) GTEST_SKIP() << "needs a GPU";
  }
};

const std::vector<std::array<int64_t, 2>> kShapes = {{1, 7}, {5, 33}, {24, 128}, {65, 301}};

// Five steps: the roots are refreshed at every step, at the first and the last, or at the first alone.
TEST_F(WhitenedStep, IsThePolynomialOfTheWhitenedMomentum) {
  for (const auto& steps : {kJordan, kMinimax}) {
    for (const auto& [covariance_every, root_every] :
         std::vector<std::array<int64_t, 2>>{{1, 1}, {1, 4}, {4, 1}, {4, 8}}) {
      const SpectralRule rule = rule_of(steps, covariance_every, root_every);
      Problem problem(kShapes);
      std::vector<Reference> references;
      for (size_t s = 0; s < kShapes.size(); ++s) {
        const auto [m, n] = kShapes[s];
        references.push_back(
            {dense(m, n, problem.memory[s].M.values()), dense(n, n, problem.memory[s].C.values(), 4), Dense(n, n), 8});
      }
      for (int t = 0; t < 5; ++t) {
        std::vector<std::vector<float>> before;
        for (const auto& memory : problem.memory) before.push_back(memory.W.values());
        ASSERT_NO_FATAL_FAILURE(problem.step(rule));
        for (size_t s = 0; s < kShapes.size(); ++s) {
          const auto [m, n] = kShapes[s];
          auto G = problem.memory[s].G.values();
          G.resize(m * n);
          const double error = error_of(before[s], problem.memory[s].W.values(), references[s].update(rule, G));
          EXPECT_LT(error, m < 24 ? 0.05 : 0.02) << m << "×" << n << ", " << steps.size() << " steps, covariance every "
                                                 << covariance_every << ", root every " << root_every << ", t " << t;
        }
      }
    }
  }
}

TEST_F(WhitenedStep, IsTheSameTwice) {
  for (const auto& steps : {kJordan, kMinimax}) {
    const SpectralRule rule = rule_of(steps, 2, 3);
    Problem first(kShapes, 0), second(kShapes, 0);
    for (int t = 0; t < 4; ++t) {
      first.step(rule);
      second.step(rule);
    }
    for (size_t s = 0; s < kShapes.size(); ++s) {
      for (const auto field : kState) {
        const auto values = (first.memory[s].*field).values();
        EXPECT_EQ(values, (second.memory[s].*field).values());
        for (const float x : values) ASSERT_TRUE(std::isfinite(x));
      }
    }
  }
}

TEST_F(WhitenedStep, KeepsTheRootBetweenRefreshes) {
  const SpectralRule rule = rule_of(kMinimax, 1, 3);
  Problem problem(kShapes, 0);
  std::vector<std::vector<float>> before(kShapes.size());
  for (int t = 1; t <= 7; ++t) {
    problem.step(rule);
    for (size_t s = 0; s < kShapes.size(); ++s) {
      const auto now = problem.memory[s].root.values();
      EXPECT_EQ(now == before[s], (t - 1) % 3 != 0) << s << ", step " << t;
      before[s] = now;
    }
  }
}

TEST_F(WhitenedStep, CountsTheStepsOfEachMatrix) {  // only the second of two matrices is due
  const SpectralRule rule = rule_of(kMinimax, 1, 4);
  Problem problem(kShapes);
  problem.step(rule);  // step 9: both
  std::vector<std::vector<float>> roots;
  for (auto& memory : problem.memory) {
    roots.push_back(memory.root.values());
    const float next = 12;
    ASSERT_CUDA(cudaMemcpy(memory.step.data() + 1, &next, sizeof(next), cudaMemcpyHostToDevice));
  }
  problem.step(rule);
  for (size_t s = 0; s < kShapes.size(); ++s) {
    const auto now = problem.memory[s].root.values();
    const auto middle = static_cast<std::ptrdiff_t>(now.size() / 2);
    EXPECT_TRUE(std::equal(now.begin(), now.begin() + middle, roots[s].begin()));
    EXPECT_FALSE(std::equal(now.begin() + middle, now.end(), roots[s].begin() + middle));
    for (const float w : problem.memory[s].W.values()) ASSERT_TRUE(std::isfinite(w));
  }
}

TEST_F(WhitenedStep, WithTheApplyFlagDownChangesNothing) {
  const DeviceArray<char> apply(std::vector<char>{0});
  Problem problem(kShapes);
  const Problem untouched(kShapes);
  problem.step(rule_of(kMinimax),
               {.lr = {.value = 1}, .apply = reinterpret_cast<const bool*>(apply.data()), .weight_decay = 0.5});
  for (size_t s = 0; s < kShapes.size(); ++s) {
    for (const auto field : kState)
      EXPECT_EQ((problem.memory[s].*field).values(), (untouched.memory[s].*field).values());
  }
}

// Wide matrices beside one that is shaped from the right, in the same chunk.
TEST_F(WhitenedStep, DoesNotDependOnItsNeighbors) {
  const SpectralRule rule = rule_of(kMinimax, 1, 2);
  Problem alone({{24, 128}}), together({{24, 128}, {40, 40}, {65, 301}});
  together.stacks[1].left = together.stacks[1].whitened = false;
  for (int t = 0; t < 3; ++t) {
    alone.step(rule);
    together.step(rule);
  }
  for (const auto field : kState) EXPECT_EQ((alone.memory[0].*field).values(), (together.memory[0].*field).values());
  for (const float w : together.memory[1].W.values()) ASSERT_TRUE(std::isfinite(w));
}

}  // namespace
}  // namespace prism::cuda::test
