// Whole steps of thin matrices against the same rule in float64, without torch.

#include <array>
#include <cmath>

#include "tests/cuda/dense.h"
#include "tests/cuda/device.h"

namespace prism::cuda::test {
namespace {

using Shape = std::array<int64_t, 2>;

// Lengths below and above a tile, above a block's tiles, and beyond shared memory; both sides of each.
const std::vector<Shape> kShapes = {{1, 1},     {1, 7},     {7, 1},     {8, 33},    {33, 8},    {16, 16},
                                    {32, 32},   {17, 40},   {40, 17},   {5, 301},   {301, 5},   {16, 1024},
                                    {1024, 16}, {27, 576},  {576, 27},  {31, 1000}, {16, 4096}, {4096, 16},
                                    {13, 7001}, {7001, 13}, {32, 2000}, {2000, 32}};

// A matrix and its state in float64.
struct Matrix {
  Dense G, W, M, C, v;  // C (k, k) is Ĉ; v (m, 1)
  bool left;

  Matrix(const Shape& shape, unsigned seed)
      : G(shape[0], shape[1]),
        W(G),
        M(G),
        C(std::min(shape[0], shape[1]), std::min(shape[0], shape[1])),
        v(shape[0], 1),
        left(shape[0] < shape[1]) {
    for (Dense* X : {&G, &W, &M}) {
      const auto values = normal(X->x.size(), ++seed);
      X->x.assign(values.begin(), values.end());
    }
  }

  Dense gram(const Dense& X) const { return left ? product(X, transposed(X)) : product(transposed(X), X); }

  void step(const SpectralRule& rule, int t, double lr, double decay, double scale) {
    Dense T = G, D = G;
    const double correction = rule.bias_correction ? 1 / (1 - std::pow(rule.momentum, t)) : 1;
    for (size_t i = 0; i < G.x.size(); ++i) {
      M.x[i] += (1 - rule.momentum) * (G.x[i] - M.x[i]);
      const double predicted = M.x[i] * correction;
      D.x[i] = G.x[i] - predicted;
      T.x[i] = predicted + (rule.nesterov ? (1 - rule.momentum) * D.x[i] : 0);
    }
    Dense R = gram(T);
    const auto k = static_cast<double>(R.rows), every = static_cast<double>(rule.covariance_every);
    double trace = trace_of(R);
    for (size_t i = 0; i < R.rows; ++i) R(i, i) += rule.damping * trace / k;
    if (rule.noisy) {
      Dense noise = gram(D);
      if (rule.averaged) {
        const double kept = std::pow(rule.covariance_beta, every), covered = std::ceil(t / every) * every;
        for (size_t i = 0; i < C.x.size() && std::fmod(t - 1, every) == 0; ++i)
          C.x[i] = kept * C.x[i] + (1 - kept) * noise.x[i];
        for (size_t i = 0; i < C.x.size(); ++i) noise.x[i] = C.x[i] / (1 - std::pow(rule.covariance_beta, covered));
      }
      for (size_t i = 0; i < R.x.size(); ++i) R.x[i] += rule.gamma.value * rule.gamma.value * noise.x[i];
    }
    const auto [Q, size] = inverse_root(rule, R);
    Dense O = left ? product(Q, T) : product(T, Q);
    for (double& o : O.x) o /= std::sqrt(size);
    rescale(O, rule);
    for (size_t i = 0; i < W.x.size(); ++i) W.x[i] = (1 - lr * decay) * W.x[i] - lr * scale * O.x[i];
  }

 private:
  static double trace_of(const Dense& R) {
    double sum = 0;
    for (size_t i = 0; i < R.rows; ++i) sum += R(i, i);
    return sum;
  }

  void rescale(Dense& O, const SpectralRule& rule) {
    if (!rule.rescales()) return;
    double before = 0, after = 0;
    for (size_t i = 0; i < O.rows; ++i) {
      double row = 0;
      for (size_t j = 0; j < O.columns; ++j) row += O(i, j) * O(i, j);
      before += row;
      if (rule.normalizes_rows) {
        v(i, 0) += (1 - rule.row_beta) * (row / static_cast<double>(O.columns) - v(i, 0));
        for (size_t j = 0; j < O.columns; ++j) O(i, j) /= std::sqrt(v(i, 0));
      }
      for (size_t j = 0; j < O.columns; ++j) after += O(i, j) * O(i, j);
    }
    const double wanted = rule.fixed_norm ? static_cast<double>(std::min(O.rows, O.columns)) : before;
    for (double& o : O.x) o *= std::sqrt(wanted / after);
  }
};

// Floats from an address that is a multiple of 4 bytes only.
struct Unaligned {
  DeviceArray<float> memory;

  explicit Unaligned(const Dense& X) : memory(with_one_before(X)) {}
  float* data() const { return memory.data() + 1; }
  std::vector<float> values() const {
    const auto all = memory.values();
    return {all.begin() + 1, all.end()};
  }
  static std::vector<float> with_one_before(const Dense& X) {
    std::vector<float> values(1);
    values.insert(values.end(), X.x.begin(), X.x.end());
    return values;
  }
};

struct OnDevice {
  Unaligned G, W, M, C, C_scale, step, v;
  MatrixStack stack;

  OnDevice(const Matrix& matrix, const SpectralRule& rule, double scale)
      : G(matrix.G), W(matrix.W), M(matrix.M), C(matrix.C), C_scale(Dense(1, 1)), step(Dense(1, 1)), v(matrix.v) {
    stack = {.m = static_cast<int64_t>(matrix.G.rows),
             .n = static_cast<int64_t>(matrix.G.columns),
             .left = matrix.left,
             .scale = scale};
    stack.G = {G.data()};
    stack.W = {W.data()};
    stack.M = {M.data()};
    stack.step = {step.data()};
    if (rule.averaged) stack.C = {C.data()}, stack.C_scale = {C_scale.data()};
    if (rule.normalizes_rows) stack.row_moment = {v.data()};
  }
};

// ‖actual − expected‖/‖expected‖.
double apart(const std::vector<float>& actual, const std::vector<double>& expected) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(actual[i] - expected[i], 2);
    size += expected[i] * expected[i];
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

void take_step(const SpectralRule& rule, const StepScalars& scalars, const std::vector<MatrixStack>& stacks) {
  std::optional<DeviceArray<char>> scratch;
  const auto allocate = [&](size_t bytes) -> void* { return scratch.emplace(std::vector<char>(bytes)).data(); };
  ASSERT_CUDA(spectral_step(rule, scalars, stacks, allocate, 0, nullptr));
  ASSERT_CUDA(cudaDeviceSynchronize());
}

struct Case {
  const char* name;
  SpectralRule rule;
};

std::vector<Case> cases() {
  const SpectralRule minimax{.steps = kMinimax, .bound = 1.05, .by_norm = true};
  SpectralRule instant = minimax, averaged = minimax, seldom, rows, fixed = minimax, jordan{.steps = kJordan},
               damped{.steps = kJordan};
  instant.noisy = averaged.noisy = true;
  instant.gamma.value = 0.5;
  averaged.gamma.value = 0.3;
  averaged.averaged = true;
  averaged.covariance_beta = 0.9;
  seldom = rows = averaged;
  seldom.covariance_every = 2;
  seldom.bias_correction = true;
  rows.normalizes_rows = true;
  rows.row_beta = 0.5;
  fixed.fixed_norm = true;
  fixed.nesterov = false;
  jordan.noisy = true;
  jordan.gamma.value = 1;
  damped.damping = 0.5;
  return {{"muon", minimax}, {"instant", instant},  {"averaged", averaged}, {"seldom", seldom},
          {"rows", rows},    {"fixed norm", fixed}, {"jordan", jordan},     {"damped", damped}};
}

class ThinMatrices : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_device()) GTEST_SKIP() << "needs a GPU";
  }
};

// Beside the exact polynomial, O has the error of T in fp16, 2⁻¹² of an entry, and that of the Gram matrix in float32, which
// shows in the small singular values of square matrices. The momentum and Ĉ are float32.
TEST_F(ThinMatrices, TakeTheStepsOfFloat64) {
  constexpr double kRate = 0.1, kDecay = 0.2, kScale = 1.5;
  for (const auto& [name, rule] : cases()) {
    std::vector<Matrix> expected;
    std::vector<OnDevice> actual;
    std::vector<MatrixStack> stacks;
    for (const auto& shape : kShapes) {
      expected.emplace_back(shape, 10 * static_cast<unsigned>(expected.size()));
      actual.emplace_back(expected.back(), rule, kScale);
      stacks.push_back(actual.back().stack);
      ASSERT_TRUE(is_thin(rule, stacks.back()));
    }
    const auto start = expected;
    for (int t = 1; t <= 3; ++t) {
      take_step(rule, {.lr = {.value = kRate}, .weight_decay = kDecay}, stacks);
      for (auto& matrix : expected) matrix.step(rule, t, kRate, kDecay, kScale);
    }
    for (size_t s = 0; s < kShapes.size(); ++s) {
      const auto message = testing::Message() << name << ", " << kShapes[s][0] << "×" << kShapes[s][1];
      const auto& matrix = expected[s];
      auto W = actual[s].W.values();
      auto moved = matrix.W.x;
      const double kept = std::pow(1 - kRate * kDecay, 3);
      for (size_t i = 0; i < W.size(); ++i) {  // without the decayed start, which hides the update
        W[i] -= static_cast<float>(kept * start[s].W.x[i]);
        moved[i] -= kept * start[s].W.x[i];
      }
      EXPECT_LT(apart(W, moved), kShapes[s][0] == kShapes[s][1] ? 1e-2 : 1e-3) << message;
      EXPECT_LT(apart(actual[s].M.values(), matrix.M.x), 1e-6) << message;
      if (rule.normalizes_rows) {
        EXPECT_LT(apart(actual[s].v.values(), matrix.v.x), 1e-3) << message;
      }
      if (rule.averaged) {
        auto C = actual[s].C.values();
        const double scale = actual[s].C_scale.values()[0];
        for (auto& c : C) c *= static_cast<float>(scale * scale);
        EXPECT_LT(apart(C, matrix.C.x), 1e-5) << message;
      }
      EXPECT_EQ(actual[s].step.values()[0], 3);
    }
  }
}

TEST_F(ThinMatrices, DoNotDependOnCompanions) {
  for (const auto& [name, rule] : cases()) {
    std::vector<OnDevice> together;
    std::vector<MatrixStack> stacks;
    for (size_t s = 0; s < kShapes.size(); ++s)
      stacks.push_back(together.emplace_back(Matrix(kShapes[s], 10 * s), rule, 1).stack);
    take_step(rule, {.lr = {.value = 0.1}}, stacks);
    for (size_t s = 0; s < kShapes.size(); ++s) {
      const OnDevice alone(Matrix(kShapes[s], 10 * s), rule, 1);
      take_step(rule, {.lr = {.value = 0.1}}, {alone.stack});
      EXPECT_EQ(alone.W.values(), together[s].W.values()) << name;
      EXPECT_EQ(alone.M.values(), together[s].M.values()) << name;
      EXPECT_EQ(alone.C.values(), together[s].C.values()) << name;
    }
  }
}

TEST_F(ThinMatrices, DoNotDependOnTheGradientsMagnitude) {
  for (const auto& [name, rule] : cases()) {
    for (const Shape& shape : {Shape{16, 100}, Shape{100, 16}, Shape{12, 6000}}) {
      std::vector<std::vector<float>> found;
      for (const double magnitude : {1., 1e-30, 1e-12, 1e12, 1e30}) {
        Matrix matrix(shape, 1);
        for (Dense* X : {&matrix.G, &matrix.M}) {
          for (double& x : X->x) x *= magnitude;
        }
        for (double& w : matrix.W.x) w = 0;
        const OnDevice one(matrix, rule, 1);
        take_step(rule, {.lr = {.value = 1}}, {one.stack});
        found.push_back(one.W.values());
        EXPECT_LT(apart(found.back(), {found.front().begin(), found.front().end()}), 1e-3) << name << ' ' << magnitude;
      }
    }
  }
}

TEST_F(ThinMatrices, OfZerosStayAsTheyAre) {
  for (const auto& [name, rule] : cases()) {
    Matrix matrix({16, 100}, 1);
    for (Dense* X : {&matrix.G, &matrix.M}) X->x.assign(X->x.size(), 0);
    const OnDevice one(matrix, rule, 1);
    const auto before = one.W.values();
    take_step(rule, {.lr = {.value = 1}}, {one.stack});
    EXPECT_EQ(one.W.values(), before) << name;
  }
}

TEST_F(ThinMatrices, InThousandsTakeOneStep) {
  const SpectralRule rule = cases()[1].rule;
  const Matrix matrix({4, 40}, 1);
  const size_t count = 3000, size = matrix.G.x.size();
  std::vector<float> G, M;
  for (size_t b = 0; b < count; ++b) {
    G.insert(G.end(), matrix.G.x.begin(), matrix.G.x.end());
    M.insert(M.end(), matrix.M.x.begin(), matrix.M.x.end());
  }
  const DeviceArray<float> gradients(G), momenta(M), weights(std::vector<float>(count * size));
  const DeviceArray<float> counters{std::vector<float>(count)};
  MatrixStack stack{.m = 4, .n = 40, .left = true};
  for (size_t b = 0; b < count; ++b) {
    stack.G.push_back(gradients.data() + b * size);
    stack.M.push_back(momenta.data() + b * size);
    stack.W.push_back(weights.data() + b * size);
    stack.step.push_back(counters.data() + b);
  }
  take_step(rule, {.lr = {.value = 1}}, {stack});
  const auto W = weights.values();
  const std::vector<float> first(W.begin(), W.begin() + static_cast<std::ptrdiff_t>(size));
  EXPECT_NE(first, std::vector<float>(size));
  for (size_t b = 1; b < count; ++b) {
    const auto begin = W.begin() + static_cast<std::ptrdiff_t>(b * size);
    ASSERT_EQ(std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(size)), first) << b;
  }
  EXPECT_EQ(counters.values(), std::vector<float>(count, 1));
}

}  // namespace
}  // namespace prism::cuda::test
