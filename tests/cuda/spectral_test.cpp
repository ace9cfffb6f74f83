// Runs whole steps through the launcher without torch: for compute-sanitizer, and for identities that hold at any
// precision.

#include <array>
#include <cmath>
#include <utility>

#include "tests/cuda/dense.h"
#include "tests/cuda/device.h"

namespace prism::cuda::test {
namespace {

// Stacks of two shapes and both sides, on the device.
struct Problem {
  struct Memory {
    DeviceArray<float> G, W, M, C, C_scale, step;
  };
  std::vector<Memory> memory;
  std::vector<MatrixStack> stacks;

  explicit Problem(const std::vector<std::array<int64_t, 2>>& shapes, bool averaged = false) {
    unsigned seed = 0;
    for (const auto& [m, n] : shapes) {
      const size_t size = m * n, count = 2, k = std::min(m, n);
      Memory one{
          DeviceArray<float>(normal(count * size, ++seed)), DeviceArray<float>(normal(count * size, ++seed)),
          DeviceArray<float>(normal(count * size, ++seed)), DeviceArray<float>(std::vector<float>(count * k * k)),
          DeviceArray<float>(std::vector<float>(count)),    DeviceArray<float>(std::vector<float>(count))};
      MatrixStack stack{.m = m, .n = n, .left = m < n};
      for (size_t b = 0; b < count; ++b) {
        stack.G.push_back(one.G.data() + b * size);
        stack.W.push_back(one.W.data() + b * size);
        stack.M.push_back(one.M.data() + b * size);
        if (!averaged) continue;
        stack.C.push_back(one.C.data() + b * k * k);
        stack.C_scale.push_back(one.C_scale.data() + b);
        stack.step.push_back(one.step.data() + b);
      }
      memory.push_back(std::move(one));
      stacks.push_back(std::move(stack));
    }
  }

  void step(const SpectralRule& rule, const StepScalars& scalars) {
    std::optional<DeviceArray<char>> scratch;
    const auto allocate = [&](size_t bytes) -> void* { return scratch.emplace(std::vector<char>(bytes)).data(); };
    ASSERT_CUDA(spectral_step(rule, scalars, stacks, allocate, 0, nullptr));
    ASSERT_CUDA(cudaDeviceSynchronize());
  }
};

class SpectralStep : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_device()) GTEST_SKIP() << "needs a GPU";
  }
};

const std::vector<std::array<int64_t, 2>> kShapes = {{1, 1}, {7, 3}, {130, 70}, {70, 130}, {300, 257}};

TEST_F(SpectralStep, IsTheSameTwice) {
  for (const auto& steps : {kJordan, kMinimax}) {
    for (const bool averaged : {false, true}) {
      const SpectralRule rule{.noisy = true,
                              .gamma = {.value = 0.5},
                              .averaged = averaged,
                              .covariance_beta = 0.9,
                              .steps = steps,
                              .bound = 1.02,
                              .by_norm = steps.size() == 3};
      const StepScalars scalars{.lr = {.value = 0.1}, .weight_decay = 0.1};
      Problem first(kShapes, averaged), second(kShapes, averaged);
      for (int t = 0; t < 2; ++t) {
        first.step(rule, scalars);
        second.step(rule, scalars);
      }
      for (size_t s = 0; s < kShapes.size(); ++s) {
        EXPECT_EQ(first.memory[s].W.values(), second.memory[s].W.values());
        EXPECT_EQ(first.memory[s].M.values(), second.memory[s].M.values());
        EXPECT_EQ(first.memory[s].C.values(), second.memory[s].C.values());
        for (const float w : first.memory[s].W.values()) ASSERT_TRUE(std::isfinite(w));
      }
    }
  }
}

TEST_F(SpectralStep,
       WithoutMomentumAndNoiseMakesTheColumnsOrthonormal) {  // OᵀO ≈ I for one side, up to the polynomial's range
  for (const bool by_norm : {false, true}) {
    const SpectralRule rule{.momentum = 0, .nesterov = false, .steps = kMinimax, .bound = 1.02, .by_norm = by_norm};
    Problem problem({{300, 40}});
    const auto before = problem.memory[0].W.values();
    problem.step(rule, {.lr = {.value = 1}});
    const auto after = problem.memory[0].W.values();
    for (int i = 0; i < 40; ++i) {
      for (int j = 0; j < 40; ++j) {
        double sum = 0;
        for (int r = 0; r < 300; ++r)
          sum += (before[r * 40 + i] - after[r * 40 + i]) * (before[r * 40 + j] - after[r * 40 + j]);
        EXPECT_NEAR(sum, i == j ? 1 : 0, 0.27) << i << ' ' << j << (by_norm ? ", by norm" : ", by trace");
      }
    }
  }
}

// Returns the update without rounding: the rule's polynomials applied to [T; γD], top block.
Dense update_of(const SpectralRule& rule, const Dense& T, const Dense& D) {
  Dense S(2 * T.rows, T.columns);
  for (size_t i = 0; i < T.rows; ++i) {
    for (size_t j = 0; j < T.columns; ++j) S(i, j) = T(i, j), S(T.rows + i, j) = rule.gamma.value * D(i, j);
  }
  const auto [Q, size] = inverse_root(rule, product(S, transposed(S)));
  Dense O = product(Q, S);
  for (double& o : O.x) o /= std::sqrt(size);
  O.x.resize(T.x.size());  // the first rows
  O.rows = T.rows;
  return O;
}

// Compares T (TᵀT + γ²DᵀD)^(−1/2) through the 2m×2m Gram of [T; γD] with the same polynomial in float64, for odd sizes
// and a multiple of 8. The n×n Gram is no reference: on its null space Q is 485, and rounding that to fp16 shows in the
// update (0.13 for 5×33). The smallest matrices have a wider bound: their few directions lie near the end of minimax9's
// interval, where its first step, with coefficients up to 617, magnifies rounding most.
TEST_F(SpectralStep, ThroughTheGramOfTheStackIsThePolynomialOfTheStack) {
  const std::vector<std::array<int64_t, 2>> shapes = {{1, 7}, {5, 33}, {24, 128}, {65, 301}};
  for (const auto& steps : {kJordan, kMinimax}) {
    const SpectralRule rule{.noisy = true,
                            .gamma = {.value = 0.7},
                            .steps = steps,
                            .bound = steps.size() == 3 ? 1.05 : 1,
                            .by_norm = steps.size() == 3};
    Problem problem(shapes);
    for (auto& stack : problem.stacks) stack.left = false, stack.stacked = true;
    const Problem start(shapes);
    problem.step(rule, {.lr = {.value = 1}});
    for (size_t s = 0; s < shapes.size(); ++s) {
      const auto [m, n] = shapes[s];
      const auto G = start.memory[s].G.values(), M = start.memory[s].M.values(), before = start.memory[s].W.values(),
                 after = problem.memory[s].W.values();
      Dense T(m, n), D(m, n);
      for (size_t i = 0; i < T.x.size(); ++i) {  // the first matrix of the stack
        const double momentum = rule.momentum * M[i] + (1 - rule.momentum) * G[i];
        T.x[i] = (1 - rule.momentum) * G[i] + rule.momentum * momentum;
        D.x[i] = G[i] - momentum;
      }
      const Dense O = update_of(rule, T, D);
      double apart = 0, size = 0;
      for (size_t i = 0; i < O.x.size(); ++i) {
        apart += std::pow(before[i] - after[i] - O.x[i], 2);
        size += std::pow(O.x[i], 2);
      }
      EXPECT_LT(std::sqrt(apart / size), m < 24 ? 0.05 : 0.02) << m << "×" << n << ", " << steps.size() << " steps";
    }
  }
}

// Takes the step of a stack as two processes do, each of which holds half of the elements of each matrix. Returns the
// updates; momenta and state advance.
std::vector<float> update_of_halves(const SpectralRule& rule, const MatrixStack& whole) {
  std::vector<DeviceArray<char>> scratch;
  const auto allocate = [&](size_t bytes) -> void* { return scratch.emplace_back(std::vector<char>(bytes)).data(); };
  const size_t count = whole.G.size(), elements = whole.m * whole.n, half = elements / 2 + 3;
  std::vector<MatrixStack> parts;
  std::vector<double> sums(count * kSums);
  for (const auto& [first, size] : {std::pair{size_t{0}, half}, std::pair{half, elements - half}}) {
    MatrixStack part{.m = 1, .n = static_cast<int64_t>(size), .step = whole.step};
    for (size_t b = 0; b < count; ++b) {
      part.G.push_back(static_cast<const float*>(whole.G[b]) + first);
      part.M.push_back(whole.M[b] + first);
    }
    const DeviceArray<double> here{std::vector<double>(count * kSums)};
    EXPECT_EQ(measure_parts(rule, part, here.data(), allocate, nullptr), 0);
    const auto values = here.values();
    for (size_t i = 0; i < sums.size(); ++i)
      sums[i] = i % kSums < 2 ? std::max(sums[i], values[i]) : sums[i] + values[i];
    parts.push_back(std::move(part));
  }
  const DeviceArray<double> agreed(sums);
  std::vector<uint16_t> T(count * elements), D(count * elements);
  size_t first = 0;
  for (const auto& part : parts) {
    const size_t size = part.n;
    const DeviceArray<uint16_t> T_here{std::vector<uint16_t>(count * size)},
        D_here{std::vector<uint16_t>(count * size)};
    EXPECT_EQ(form_operands(rule, part, agreed.data(), T_here.data(), rule.noisy ? D_here.data() : nullptr, allocate,
                            nullptr),
              0);
    const auto T_values = T_here.values(), D_values = D_here.values();
    for (size_t i = 0; i < count * size; ++i) {
      const size_t place = i / size * elements + first + i % size;
      T[place] = T_values[i], D[place] = D_values[i];
    }
    first += size;
  }
  const DeviceArray<uint16_t> T_whole(T), D_whole(D);
  const DeviceArray<float> U{std::vector<float>(count * elements)};
  MatrixStack owned = whole;
  for (size_t b = 0; b < count; ++b) owned.W[b] = U.data() + b * elements;
  EXPECT_EQ(shape_operands(rule, owned, agreed.data(), T_whole.data(), rule.noisy ? D_whole.data() : nullptr, allocate,
                           0, nullptr),
            0);
  return U.values();
}

// One process guesses the powers of two of the operands from a sample of each matrix; several processes agree on them.
// Most of the places of the largest element are not in the sample.
TEST_F(SpectralStep, OfPartsHasTheBitsOfTheWholeMatrix) {
  const int64_t m = 120, n = 96;
  const std::vector<float> counted = {1, 1};  // of parts, step counters include this step
  for (const auto& [noisy, averaged] : {std::pair{false, false}, {true, false}, {true, true}}) {
    const SpectralRule rule{.noisy = noisy,
                            .gamma = {.value = 0.5},
                            .averaged = averaged,
                            .covariance_beta = 0.9,
                            .steps = kMinimax,
                            .bound = 1.05,
                            .by_norm = true};
    for (const float rest : {1.f, 0.f}) {
      for (const size_t place : {0, 17, 1000, 4095, 6000, 11519}) {
        std::vector<float> G = normal(2 * m * n, 7);
        for (auto& g : G) g *= rest;
        G[place] = rest == 0 ? 1e-9f : 1e7f;
        Problem whole({{m, n}}, averaged), cut({{m, n}}, averaged);
        for (auto* memory : {&whole.memory[0], &cut.memory[0]}) {
          ASSERT_CUDA(cudaMemcpy(memory->G.data(), G.data(), G.size() * sizeof(float), cudaMemcpyHostToDevice));
          ASSERT_CUDA(cudaMemset(memory->W.data(), 0, G.size() * sizeof(float)));
          ASSERT_CUDA(cudaMemset(memory->M.data(), 0, G.size() * sizeof(float)));
        }
        ASSERT_CUDA(cudaMemcpy(cut.memory[0].step.data(), counted.data(), 2 * sizeof(float), cudaMemcpyHostToDevice));
        whole.step(rule, {.lr = {.value = -1}});
        const auto update = whole.memory[0].W.values();
        EXPECT_EQ(update, update_of_halves(rule, cut.stacks[0])) << place << ' ' << rest;
        EXPECT_EQ(whole.memory[0].M.values(), cut.memory[0].M.values());
        EXPECT_EQ(whole.memory[0].C.values(), cut.memory[0].C.values());
        EXPECT_GT(std::abs(update[place]), 0.1) << place << ' ' << rest;
      }
    }
  }
}

TEST_F(SpectralStep, WithTheApplyFlagDownChangesNothing) {
  const SpectralRule rule{
      .noisy = true, .gamma = {.value = 1}, .averaged = true, .covariance_beta = 0.9, .steps = kJordan};
  const DeviceArray<char> apply(std::vector<char>{0});
  Problem problem(kShapes, true);
  const Problem untouched(kShapes, true);
  problem.step(rule, {.lr = {.value = 1}, .apply = reinterpret_cast<const bool*>(apply.data()), .weight_decay = 0.5});
  for (size_t s = 0; s < kShapes.size(); ++s) {
    EXPECT_EQ(problem.memory[s].W.values(), untouched.memory[s].W.values());
    EXPECT_EQ(problem.memory[s].M.values(), untouched.memory[s].M.values());
    EXPECT_EQ(problem.memory[s].C.values(), untouched.memory[s].C.values());
    EXPECT_EQ(problem.memory[s].C_scale.values(), untouched.memory[s].C_scale.values());
    EXPECT_EQ(problem.memory[s].step.values(), untouched.memory[s].step.values());
  }
}

TEST_F(SpectralStep, OfVectorsIsAdamW) {
  const size_t size = 5003;
  const std::vector<float> zeros(size);
  const DeviceArray<float> G(normal(size, 1)), W(normal(size, 2)), m(zeros), v(zeros), step(std::vector<float>{0});
  const auto g = G.values(), before = W.values();
  const ElementwiseRule rule{.kind = Elementwise::Adam, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
  const Vector vector{.size = static_cast<int64_t>(size),
                      .G = G.data(),
                      .W = W.data(),
                      .step = step.data(),
                      .state = {m.data(), v.data(), nullptr}};
  ASSERT_CUDA(elementwise_step(rule, {.lr = {.value = 0.1}, .weight_decay = 0.5}, {vector}, 0, nullptr));
  ASSERT_CUDA(cudaDeviceSynchronize());
  const auto after = W.values();
  for (size_t i = 0; i < size; ++i) EXPECT_NEAR(after[i], 0.95f * before[i] - 0.1f * (g[i] > 0 ? 1 : -1), 1e-4);
  EXPECT_EQ(step.values()[0], 1);
}

}  // namespace
}  // namespace prism::cuda::test
