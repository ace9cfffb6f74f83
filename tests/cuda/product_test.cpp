// Compares the product kernels with sums in float64.

#include "prism/cuda/product.h"

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "tests/cuda/device.h"

namespace prism::cuda::test {
namespace {

int pitch_of(int columns) { return (columns + 7) / 8 * 8; }

// A stack of fp16 matrices on the host and on the device. The padding between columns and pitch is NaN.
struct Stack {
  int count, rows, columns, pitch;
  std::vector<__half> here;
  DeviceArray<__half> there;

  Stack(int count_, int rows_, int columns_, unsigned seed, bool symmetric = false)
      : count(count_), rows(rows_), columns(columns_), pitch(pitch_of(columns_)), here(size_t(count_) * rows_ * pitch) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (auto& value : here) value = __float2half(std::nanf(""));
    for (int b = 0; b < count; ++b) {
      for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < columns; ++j) at(b, i, j) = symmetric && j > i ? __half(0) : __float2half(normal(random));
      }
      for (int i = 0; symmetric && i < rows; ++i) {
        for (int j = 0; j < i; ++j) at(b, j, i) = at(b, i, j);
      }
    }
    there = DeviceArray<__half>(here);
  }

  __half& at(int b, int i, int j) { return here[(size_t(b) * rows + i) * pitch + j]; }
  double operator()(int b, int i, int j) const { return __half2float(here[(size_t(b) * rows + i) * pitch + j]); }
  // The blocks of 256×256 right of the diagonal.
  template <class Function>
  void for_right_blocks(Function&& function) {
    for (int b = 0; b < count; ++b) {
      for (int i = 0; i < rows; ++i) {
        for (int j = (i / 256 + 1) * 256; j < columns; ++j) function(at(b, i, j), at(b, j, i));
      }
    }
  }
  // Before the first launch: what is there becomes NaN, so that a product that reads it becomes NaN, too.
  void spoil_right_blocks() {
    for_right_blocks([](__half& right, const __half&) { right = __float2half(std::nanf("")); });
    there = DeviceArray<__half>(here);
  }
  // Here, what is there must be NaN still, and becomes what it would be.
  void complete_right_blocks() {
    int written = 0;
    for_right_blocks([&](__half& right, const __half& left) {
      written += !std::isnan(__half2float(right));
      right = left;
    });
    EXPECT_EQ(written, 0);
  }

  Operand operand() const { return {there.data(), pitch, int64_t{rows} * pitch}; }
  void fetch() { here = there.values(); }
};

enum class Kernel { Hopper, Portable };

cudaError_t launch(Kernel kernel, const Product& product, const Pointers& pointers = {}, const Rates& rates = {}) {
  if (kernel == Kernel::Hopper) return launch_hopper(&product, 1, pointers, rates, 0, nullptr);
  return launch_portable(&product, 1, pointers, rates, nullptr);
}

class Products : public testing::TestWithParam<Kernel> {
 protected:
  void SetUp() override {
    if (!has_device()) GTEST_SKIP() << "needs a GPU";
    if (GetParam() == Kernel::Hopper && !is_hopper()) GTEST_SKIP() << "needs compute capability 9.0";
  }

  // Computes the product into both halves of the result and fetches them.
  static void compute(Product product, Stack& high, Stack& low) {
    product.epilogue.high = high.there.data();
    product.epilogue.low = low.there.data();
    product.epilogue.pitch = high.pitch;
    product.epilogue.stride = int64_t{high.rows} * high.pitch;
    ASSERT_CUDA(launch(GetParam(), product));
    ASSERT_CUDA(cudaDeviceSynchronize());
    high.fetch();
    low.fetch();
  }
};

double product_at(const Stack& A, bool A_down, const Stack& B, bool B_down, int b, int i, int j, int k) {
  double sum = 0;
  for (int l = 0; l < k; ++l) sum += (A_down ? A(b, l, i) : A(b, i, l)) * (B_down ? B(b, l, j) : B(b, j, l));
  return sum;
}

// Returns the allowed error of an fp16 sum of k terms of size 1.
double tolerance(int k, double value) { return 1e-3 * std::abs(value) + 1e-3 * std::sqrt(double(k)) + 1e-4; }

// The same with the low half added: the error of float32 sums, which tensor cores round toward zero.
double exact_tolerance(int k, double value) { return 2e-5 * std::sqrt(double(k)) + 4e-6 * std::abs(value); }

const std::vector<std::array<int, 2>> kShapes = {{1, 1},     {7, 3},     {64, 64},   {129, 70},
                                                 {200, 129}, {256, 256}, {300, 130}, {520, 64}};

TEST_P(Products, OfSymmetricStacksAreExactlySymmetric) {
  for (const auto& [n, k] : kShapes) {
    for (const bool down : {false, true}) {
      const Stack A(3, down ? k : n, down ? n : k, 1), D(3, down ? k : n, down ? n : k, 2);
      Stack high(3, n, n, 3), low(3, n, n, 4);
      Product product{.count = 3, .rows = n, .columns = n, .A_down = down, .B_down = down, .symmetric = true};
      product.terms[0] = {A.operand(), A.operand(), k};
      product.terms[1] = {D.operand(), D.operand(), k};
      product.term_count = 2;
      product.epilogue = {.alpha = 0.5f, .diagonal = 3};
      ASSERT_NO_FATAL_FAILURE(compute(product, high, low));
      for (int b = 0; b < 3; ++b) {
        for (int i = 0; i < n; ++i) {
          for (int j = 0; j <= i; ++j) {
            const double expected =
                0.5 * (product_at(A, down, A, down, b, i, j, k) + product_at(D, down, D, down, b, i, j, k)) +
                (i == j ? 3 : 0);
            ASSERT_NEAR(high(b, i, j), expected, tolerance(k, expected))
                << n << ' ' << k << ' ' << down << ' ' << b << ' ' << i << ' ' << j;
            ASSERT_NEAR(high(b, i, j) + low(b, i, j), expected, exact_tolerance(k, expected))
                << n << ' ' << i << ' ' << j;
            ASSERT_EQ(high(b, i, j), high(b, j, i)) << n << ' ' << k << ' ' << down << ' ' << b << ' ' << i << ' ' << j;
            ASSERT_EQ(low(b, i, j), low(b, j, i)) << n << ' ' << i << ' ' << j;
          }
        }
      }
    }
  }
}

TEST_P(Products, AddAMatrixAndAMultipleOfTheIdentity) {
  for (const int n : {1, 7, 129, 260, 300, 520}) {
    // A symmetric product is a square here. The matrix that is added may be the left operand.
    for (const auto& [symmetric, own] :
         std::vector<std::array<bool, 2>>{{false, false}, {true, false}, {false, true}, {true, true}}) {
      const Stack A(2, n, n, 1, true), other(2, n, n, 2, true), E(2, n, n, 4, true);
      const Stack& B = symmetric ? A : E;
      const Stack& C = own ? A : other;
      Stack high(2, n, n, 5), low(2, n, n, 6);
      Product product{.count = 2, .rows = n, .columns = n, .symmetric = symmetric};
      product.terms[0] = {A.operand(), B.operand(), n};
      const std::vector<float> factors = {2, -1}, others = {1, -3}, diagonals = {1, -2};
      const DeviceArray<float> alpha(factors), c1(others), diagonal(diagonals);
      product.epilogue = {.alpha = 0.25f,
                          .alpha_of = alpha.data(),
                          .c1 = 2,
                          .diagonal = 5,
                          .c1_of = c1.data(),
                          .diagonal_of = diagonal.data(),
                          .C1 = C.there.data()};
      ASSERT_NO_FATAL_FAILURE(compute(product, high, low));
      for (int b = 0; b < 2; ++b) {
        for (int i = 0; i < n; ++i) {
          for (int j = 0; j < n; ++j) {
            const double v = 0.25 * factors[b] * product_at(A, false, B, false, b, i, j, n) +
                             2 * others[b] * C(b, i, j) + (i == j ? 5 * diagonals[b] : 0);
            ASSERT_NEAR(high(b, i, j), v, tolerance(n, v)) << n << ' ' << symmetric << ' ' << b << ' ' << i << ' ' << j;
            ASSERT_NEAR(high(b, i, j) + low(b, i, j), v, exact_tolerance(n, v))
                << n << ' ' << symmetric << ' ' << b << ' ' << i << ' ' << j;
          }
        }
      }
    }
  }
}

// Ĉ ← beta·Ĉ + alpha·DᵀD. With 0 and 1 a matrix stays: one of two, or both.
TEST_P(Products, UpdateAFloat32MatrixInPlace) {
  struct Factors {
    int n;
    std::vector<float> alphas, betas;
  };
  std::vector<Factors> cases;
  for (const int n : {1, 65, 129, 300}) {
    cases.push_back({n, {0.5f, 2}, {0.25f, -1}});
    cases.push_back({n, {0, 2}, {1, -1}});
    cases.push_back({n, {0, 0}, {1, 1}});
  }
  for (const auto& [n, alphas, betas] : cases) {
    const int k = 40;
    const Stack D(2, k, n, 1);
    const Stack old(2, n, n, 2, true);
    std::vector<float> values;
    for (int b = 0; b < 2; ++b) {
      for (int i = 0; i < n; ++i) {
        for (int j = 0; j < n; ++j) values.push_back(static_cast<float>(old(b, i, j)));
      }
    }
    const DeviceArray<float> C(values);
    const DeviceArray<float> alpha(alphas), beta(betas);
    Product product{.count = 2, .rows = n, .columns = n, .A_down = true, .B_down = true, .symmetric = true};
    product.terms[0] = {D.operand(), D.operand(), k};
    product.epilogue = {.alpha_of = alpha.data(), .reads_C = true, .writes_C = true, .beta_of = beta.data()};
    Pointers pointers{};
    for (int b = 0; b < 2; ++b) pointers.W[b] = C.data() + int64_t{b} * n * n;
    ASSERT_CUDA(launch(GetParam(), product, pointers));
    ASSERT_CUDA(cudaDeviceSynchronize());
    const auto result = C.values();
    for (int b = 0; b < 2; ++b) {
      for (int i = 0; i < n; ++i) {
        for (int j = 0; j < n; ++j) {
          const double expected = alphas[b] * product_at(D, true, D, true, b, i, j, k) + betas[b] * old(b, i, j);
          ASSERT_NEAR(result[(size_t(b) * n + i) * n + j], expected, 1e-4) << n << ' ' << b << ' ' << i << ' ' << j;
          ASSERT_EQ(result[(size_t(b) * n + i) * n + j], result[(size_t(b) * n + j) * n + i]);
        }
      }
    }
  }
}

// From the right T·Q, from the left Qᵀ·T. The last two shapes take several rounds of tiles. Every third master is
// stale: its weight was written after the last step, and the weight counts.
struct Update {
  int count, m, n;
  bool left = false, skip = false, has_master = false;
};

template <class T>
void expect_update(Kernel kernel, Real type, const Update& u) {
  const auto& [count, m, n, left, skip, has_master] = u;
  const int k = left ? m : n;
  const Stack X(count, m, n, 1), Q(count, k, k, 2);
  std::vector<float> start(size_t(count) * m * n), alphas;
  for (size_t i = 0; i < start.size(); ++i) start[i] = static_cast<float>(i % 17) - 8;
  std::vector<float> stale = start;
  for (size_t i = 0; i < stale.size(); i += 3) stale[i] += 3;
  for (int b = 0; b < count; ++b) alphas.push_back(b % 2 == 0 ? 0.5f : 2);
  const DeviceArray<T> W(std::vector<T>(start.begin(), start.end()));
  const DeviceArray<float> master(stale), lr(std::vector<float>{0.125f}), alpha(alphas);
  const DeviceArray<char> apply(std::vector<char>{static_cast<char>(!skip)});
  Product product{.count = count, .rows = m, .columns = n, .A_down = left, .B_down = true};
  product.terms[0] = {(left ? Q : X).operand(), (left ? X : Q).operand(), k};
  product.epilogue = {.alpha = 1 / 32.f,
                      .alpha_of = alpha.data(),
                      .weights = true,
                      .scale = 64,
                      .weight = type,
                      .has_master = has_master};
  Pointers pointers{};
  for (int b = 0; b < count; ++b) {
    pointers.W[b] = W.data() + size_t(b) * m * n;
    pointers.master[b] = master.data() + size_t(b) * m * n;
  }
  const Rates rates{{.device = lr.data()}, reinterpret_cast<const bool*>(apply.data()), 0.5f};
  ASSERT_CUDA(launch(kernel, product, pointers, rates));
  ASSERT_CUDA(cudaDeviceSynchronize());
  const auto weights = W.values();
  const auto masters = master.values();
  for (int b = 0; b < count; ++b) {
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < n; ++j) {
        const size_t at = (size_t(b) * m + i) * n + j;
        const double P = left ? product_at(Q, true, X, true, b, i, j, k) : product_at(X, false, Q, true, b, i, j, k);
        const double update = skip ? 0 : 0.125 * 2 * alphas[b] * P;
        const double expected = (skip ? 1 : 1 - 0.125 * 0.5) * start[at] - update;
        const double allowed = 1e-3 + 5e-4 * std::abs(update);  // the update may be rounded to fp16
        const double rounding = type == Real::Float32 ? 0 : std::abs(expected) / 256;
        const auto written = static_cast<float>(weights[at]);
        ASSERT_NEAR(written, expected, allowed + rounding)
            << m << ' ' << n << ' ' << left << ' ' << b << ' ' << i << ' ' << j;
        ASSERT_NEAR(masters[at], has_master ? expected : stale[at], allowed) << m << ' ' << n << ' ' << i << ' ' << j;
        if (has_master && !skip) {
          ASSERT_EQ(written, static_cast<float>(static_cast<T>(masters[at])));
        }
      }
    }
  }
}

TEST_P(Products, UpdateWeights) {
  for (const auto& [count, m, n] : std::vector<std::array<int, 3>>{
           {2, 1, 1}, {2, 7, 5}, {2, 129, 64}, {2, 300, 260}, {2, 70, 516}, {90, 130, 36}, {90, 34, 130}}) {
    for (const bool left : {false, true}) {
      for (const bool skip : {false, true}) {
        expect_update<float>(GetParam(), Real::Float32, {count, m, n, left, skip});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Products, UpdateWeightsOf16BitsAndTheirMasters) {
  for (const auto& [m, n] : std::vector<std::array<int, 2>>{{1, 1}, {129, 64}, {300, 260}, {70, 516}, {65, 258}}) {
    for (const bool has_master : {false, true}) {
      const Update update{.count = 2, .m = m, .n = n, .has_master = has_master};
      expect_update<__half>(GetParam(), Real::Float16, update);
      expect_update<__nv_bfloat16>(GetParam(), Real::BFloat16, update);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Products, OfManyMatricesShareALaunch) {  // in several rounds of tiles, long ones and short ones
  if (GetParam() == Kernel::Portable) GTEST_SKIP() << "one launch each";
  struct Shape {
    int count, n, k;
    bool symmetric, adds, splits;
  };
  const std::vector<Shape> shapes = {{40, 70, 16, true, true, false},
                                     {90, 300, 40, true, true, true},
                                     {3, 64, 64, false, false, false},
                                     {50, 200, 24, false, true, true}};
  std::vector<Stack> inputs, added, highs, lows;
  std::vector<Product> products;
  for (const auto& [count, n, k, symmetric, adds, splits] : shapes) {
    inputs.emplace_back(count, n, k, n);
    added.emplace_back(count, n, n, 2, true);
    highs.emplace_back(count, n, n, 3);
    lows.emplace_back(count, n, n, 4);
    Product product{.count = count, .rows = n, .columns = n, .symmetric = symmetric};
    product.terms[0] = {inputs.back().operand(), inputs.back().operand(), k};
    product.epilogue = {.c1 = 2,
                        .C1 = adds ? added.back().there.data() : nullptr,
                        .high = highs.back().there.data(),
                        .low = splits ? lows.back().there.data() : nullptr,
                        .pitch = highs.back().pitch,
                        .stride = int64_t{n} * highs.back().pitch};
    products.push_back(product);
  }
  ASSERT_CUDA(launch_hopper(products.data(), static_cast<int>(products.size()), {}, {}, 0, nullptr));
  ASSERT_CUDA(cudaDeviceSynchronize());
  for (size_t s = 0; s < shapes.size(); ++s) {
    const auto& [count, n, k, symmetric, adds, splits] = shapes[s];
    highs[s].fetch();
    lows[s].fetch();
    for (int b = 0; b < count; ++b) {
      for (int i = 0; i < n; ++i) {
        for (int j = 0; j <= i; ++j) {
          const double v =
              product_at(inputs[s], false, inputs[s], false, b, i, j, k) + (adds ? 2 * added[s](b, i, j) : 0);
          ASSERT_NEAR(highs[s](b, i, j), v, tolerance(k, v)) << n << ' ' << b << ' ' << i << ' ' << j;
          ASSERT_EQ(highs[s](b, i, j), highs[s](b, j, i)) << n << ' ' << b << ' ' << i << ' ' << j;
          if (!splits) continue;
          ASSERT_NEAR(highs[s](b, i, j) + lows[s](b, i, j), v, exact_tolerance(k, v)) << n << ' ' << i << ' ' << j;
          ASSERT_EQ(lows[s](b, i, j), lows[s](b, j, i)) << n << ' ' << b << ' ' << i << ' ' << j;
        }
      }
    }
  }
}

// The portable kernel takes small tiles for one matrix, and larger ones for many: the largest if k is large. All matrices
// have the same operands.
constexpr int kMany = 100;

TEST(Portable, ManyMatricesGiveTheBitsOfOne) {
  if (!has_device()) GTEST_SKIP() << "needs a GPU";
  constexpr int kSide = 521;
  for (const int k : {72, 1033}) {
    for (const auto& [A_down, B_down, symmetric] : std::vector<std::array<bool, 3>>{{false, false, false},
                                                                                    {false, false, true},
                                                                                    {false, true, false},
                                                                                    {true, false, false},
                                                                                    {true, true, true}}) {
      const Stack A(1, A_down ? k : kSide, A_down ? kSide : k, 1), B(1, B_down ? k : kSide, B_down ? kSide : k, 2);
      const int pitch = pitch_of(kSide);
      const size_t elements = size_t(kSide) * pitch;
      std::vector<std::vector<__half>> results;
      for (const int count : {1, kMany}) {
        const DeviceArray<__half> high(std::vector<__half>(count * elements)),
            low(std::vector<__half>(count * elements));
        Product product{.count = count,
                        .rows = kSide,
                        .columns = kSide,
                        .A_down = A_down,
                        .B_down = B_down,
                        .symmetric = symmetric};
        product.terms[0] = {{A.there.data(), A.pitch, 0}, {B.there.data(), B.pitch, 0}, k};
        product.epilogue = {
            .high = high.data(), .low = low.data(), .pitch = pitch, .stride = static_cast<int64_t>(elements)};
        ASSERT_CUDA(launch(Kernel::Portable, product));
        ASSERT_CUDA(cudaDeviceSynchronize());
        results.push_back(high.values());
        results.push_back(low.values());
      }
      for (const int half : {0, 1}) {
        for (int b = 0; b < kMany; ++b) {
          for (int i = 0; i < kSide; ++i) {
            const size_t row = size_t(i) * pitch;
            ASSERT_EQ(std::memcmp(&results[half][row], &results[2 + half][b * elements + row], kSide * sizeof(__half)),
                      0)
                << k << ' ' << A_down << B_down << symmetric << ' ' << half << ' ' << b << ' ' << i;
          }
        }
      }
    }
  }
}

TEST(Portable, ManyUpdatesGiveTheBitsOfOne) {
  if (!has_device()) GTEST_SKIP() << "needs a GPU";
  for (const auto& [m, n, k] : std::vector<std::array<int, 3>>{{521, 520, 72}, {521, 520, 1033}, {520, 519, 1033}}) {
    const size_t elements = size_t(m) * n;
    const Stack A(1, m, k, 1), B(1, k, n, 2);
    std::vector<std::vector<__half>> weights;
    std::vector<std::vector<float>> all_masters;
    for (const int count : {1, kMany}) {
      const DeviceArray<__half> W(std::vector<__half>(count * elements, __half(0.5f)));
      const DeviceArray<float> masters(std::vector<float>(count * elements, 0.5f));
      Product product{.count = count, .rows = m, .columns = n, .B_down = true};
      product.terms[0] = {{A.there.data(), A.pitch, 0}, {B.there.data(), B.pitch, 0}, k};
      product.epilogue = {.weights = true, .weight = Real::Float16, .has_master = true};
      Pointers pointers{};
      for (int b = 0; b < count; ++b)
        pointers.W[b] = W.data() + b * elements, pointers.master[b] = masters.data() + b * elements;
      ASSERT_CUDA(launch(Kernel::Portable, product, pointers, {{.value = 0.125}, nullptr, 0.5f}));
      ASSERT_CUDA(cudaDeviceSynchronize());
      weights.push_back(W.values());
      all_masters.push_back(masters.values());
    }
    for (int b = 0; b < kMany; ++b) {
      ASSERT_EQ(std::memcmp(weights[0].data(), &weights[1][b * elements], elements * sizeof(__half)), 0)
          << n << ' ' << b;
      ASSERT_EQ(std::memcmp(all_masters[0].data(), &all_masters[1][b * elements], elements * sizeof(float)), 0)
          << n << ' ' << b;
    }
  }
}

// The phases of a sequence as in the iteration: S = A² + …, V = SA in two halves, A ← VS from both of them, again in two
// halves, and S and V once more. With `lower`, only the lower triangles of A and S are read and written.
struct Chain {
  Stack A, A_low, S, V, V_low;
  DeviceArray<int> progress;
  bool lower;

  Chain(int count, int n, bool lower_)
      : A(count, n, n, 1, true),
        A_low(count, n, n, 2),
        S(count, n, n, 3),
        V(count, n, n, 4),
        V_low(count, n, n, 5),
        progress(std::vector<int>(count)),
        lower(lower_) {
    for (auto* stack : {&A, &A_low, &S}) {
      if (lower) stack->spoil_right_blocks();
    }
  }

  std::vector<Product> phases() {
    const int n = A.rows;
    const float scale = 1 / static_cast<float>(n);
    const auto product = [&](bool symmetric, Stack& high, __half* low, const std::vector<Term>& terms) {
      Product result{.count = A.count,
                     .rows = n,
                     .columns = n,
                     .term_count = static_cast<int>(terms.size()),
                     .symmetric = symmetric};
      std::copy(terms.begin(), terms.end(), result.terms);
      result.epilogue = {.alpha = scale,
                         .high = high.there.data(),
                         .low = low,
                         .pitch = high.pitch,
                         .stride = int64_t{n} * high.pitch};
      result.epilogue.lower = lower && symmetric;
      result.A_lower = lower && terms.back().A.data != V.there.data();
      result.B_lower = lower;
      result.progress = progress.data();
      return result;
    };
    Product square = product(true, S, nullptr, {{A.operand(), A.operand(), n}});
    square.epilogue.c1 = 0.5f;
    square.epilogue.C1 = A.there.data();
    square.epilogue.diagonal = 1;
    return {square, product(false, V, V_low.there.data(), {{S.operand(), A.operand(), n}}),
            product(true, A, A_low.there.data(), {{V_low.operand(), S.operand(), n}, {V.operand(), S.operand(), n}}),
            square, product(false, V, nullptr, {{S.operand(), A_low.operand(), n}, {S.operand(), A.operand(), n}})};
  }
};

TEST(Sequence, IsItsPhasesOneAfterTheOther) {
  if (!is_hopper()) GTEST_SKIP() << "needs compute capability 9.0";
  // One matrix that waits for itself; several sizes; more sizes than one launch takes; several rounds of tiles.
  const std::vector<std::vector<std::array<int, 2>>> cases = {
      {{1, 520}},
      {{5, 70}, {3, 300}, {2, 520}},
      {{1, 8}, {2, 16}, {1, 24}, {2, 40}, {1, 64}, {3, 72}, {1, 129}, {2, 200}, {1, 257}, {2, 300}},
      {{30, 300}, {40, 64}}};
  for (const auto& sizes : cases) {
    std::vector<Chain> together, apart;
    for (const auto& [count, n] : sizes) together.emplace_back(count, n, true), apart.emplace_back(count, n, false);
    std::vector<std::vector<Product>> phases(5);
    for (auto& chain : together) {
      const auto products = chain.phases();
      for (size_t p = 0; p < products.size(); ++p) phases[p].push_back(products[p]);
    }
    const DeviceArray<int> tickets{std::vector<int>(kMaxSequenceLaunches)};
    ASSERT_CUDA(launch_sequence(phases, tickets.data(), 0, nullptr));
    for (auto& chain : apart) {
      for (const auto& product : chain.phases()) ASSERT_CUDA(launch_hopper(&product, 1, {}, {}, 0, nullptr));
    }
    ASSERT_CUDA(cudaDeviceSynchronize());
    for (size_t s = 0; s < sizes.size(); ++s) {
      for (auto member : {&Chain::A, &Chain::A_low, &Chain::S, &Chain::V, &Chain::V_low}) {
        Stack &x = together[s].*member, &y = apart[s].*member;
        x.fetch();
        y.fetch();
        if (member != &Chain::V && member != &Chain::V_low) x.complete_right_blocks();
        int different = 0;  // without the padding
        for (int b = 0; b < x.count; ++b) {
          for (int i = 0; i < x.rows; ++i) {
            for (int j = 0; j < x.columns; ++j) different += x(b, i, j) != y(b, i, j);
          }
        }
        ASSERT_EQ(different, 0) << sizes[s][0] << " of " << sizes[s][1];
      }
    }
  }
}

// The place of a column in a row in bytes.
size_t byte_of(size_t column) { return column / 16 * 16 + column % 8 * 2 + column / 8 % 2; }

// Element (i, j) of matrix b of a stack in bytes, as it is stored.
__nv_fp8_storage_t byte_at(const Stack& stack, int b, int i, int j) {
  const auto* row =
      reinterpret_cast<const __nv_fp8_storage_t*>(&stack.here[(size_t(b) * stack.rows + i) * stack.pitch]);
  return row[byte_of(j)];
}
double value_of(__nv_fp8_storage_t byte) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(byte, __NV_E4M3))); }
__nv_fp8_storage_t in_byte(double x) {
  return __nv_cvt_halfraw_to_fp8(__float2half(static_cast<float>(x)), __NV_SATFINITE, __NV_E4M3);
}

// Z = A² + A + 1 and its copy in bytes; V = ZA with its low half in bytes; R = VZ of both halves of V, with its low half
// in bytes. Each is compared with what the operands on the device give. Symmetric ones are written and read in the lower
// triangle, except in bytes.
TEST(Sequence, MultipliesInBytes) {
  if (!is_hopper()) GTEST_SKIP() << "needs compute capability 9.0";
  for (const int n : {1, 7, 16, 24, 64, 72, 129, 200, 257, 300, 520}) {
    for (const bool symmetric : {false, true}) {
      constexpr int kCount = 2;
      constexpr float kLargest = 16000;
      Stack A(kCount, n, n, 1, true), Z(kCount, n, n, 2), Z_bytes(kCount, n, n, 3), V(kCount, n, n, 4),
          V_low(kCount, n, n, 5), R(kCount, n, n, 6), R_low(kCount, n, n, 7), sums(kCount, n, n, 8);
      for (auto* stack : {&Z, &V, &R}) stack->spoil_right_blocks();
      const DeviceArray<int> progress{std::vector<int>(kCount)}, tickets{std::vector<int>(kMaxSequenceLaunches)};
      const float scale = kLargest / 8 / static_cast<float>(n);
      const auto product = [&](bool is_symmetric, float alpha, const Stack& high, const std::vector<Term>& terms) {
        Product result{.count = kCount,
                       .rows = n,
                       .columns = n,
                       .term_count = static_cast<int>(terms.size()),
                       .symmetric = is_symmetric};
        std::copy(terms.begin(), terms.end(), result.terms);
        result.epilogue = {.alpha = alpha,
                           .high = high.there.data(),
                           .lower = is_symmetric,
                           .pitch = high.pitch,
                           .stride = int64_t{n} * high.pitch};
        result.progress = progress.data();
        return result;
      };
      Product of_Z = product(true, scale, Z, {{A.operand(), A.operand(), n}});
      of_Z.epilogue.c1 = scale;
      of_Z.epilogue.C1 = A.there.data();
      of_Z.epilogue.diagonal = 1000;
      of_Z.epilogue.bytes = Z_bytes.there.data();
      Product of_V = product(symmetric, 0.25f, V, {{Z.operand(), A.operand(), n}});
      of_V.A_lower = true;
      of_V.epilogue.low = V_low.there.data();
      of_V.epilogue.low_in_bytes = true;
      Product of_R = product(symmetric, 1 / kLargest, R,
                             {{V_low.operand(), Z_bytes.operand(), n, true}, {V.operand(), Z.operand(), n}});
      of_R.A_lower = symmetric;
      of_R.B_lower = true;
      of_R.epilogue.low = R_low.there.data();
      of_R.epilogue.low_in_bytes = true;
      const Product of_sums = product(false, 1, sums, {{V_low.operand(), Z_bytes.operand(), n, true}});
      ASSERT_CUDA(launch_sequence({{of_Z}, {of_V}, {of_R}, {of_sums}}, tickets.data(), 0, nullptr));
      ASSERT_CUDA(cudaDeviceSynchronize());
      for (auto* stack : {&Z, &Z_bytes, &V, &V_low, &R, &R_low, &sums}) stack->fetch();
      Z.complete_right_blocks();
      if (symmetric) V.complete_right_blocks(), R.complete_right_blocks();
      for (int b = 0; b < kCount; ++b) {
        for (int i = 0; i < n; ++i) {
          for (int j = 0; j < (n + 15) / 16 * 16; ++j) {
            if (j >= n) {
              ASSERT_EQ(byte_at(Z_bytes, b, i, j) & 0x7f, 0) << n << ' ' << i << ' ' << j;
              ASSERT_EQ(byte_at(V_low, b, i, j) & 0x7f, 0) << n << ' ' << i << ' ' << j;
              continue;
            }
            ASSERT_EQ(byte_at(Z_bytes, b, i, j), in_byte(Z(b, i, j) / kLowInBytes)) << n << ' ' << i << ' ' << j;
            const bool mirrored = symmetric && j > i;
            const double v = 0.25 * product_at(Z, false, A, false, b, mirrored ? j : i, mirrored ? i : j, n);
            const double low = value_of(byte_at(V_low, b, i, j)) / kLowInBytes;
            ASSERT_NEAR(V(b, i, j) + low, v, std::abs(low) / 14 + 2e-6 * kLargest)
                << n << ' ' << symmetric << ' ' << b << ' ' << i << ' ' << j;
            double of_bytes = 0, size = 0;
            for (int l = 0; l < n; ++l) {
              const double one = value_of(byte_at(V_low, b, i, l)) * value_of(byte_at(Z_bytes, b, j, l));
              of_bytes += one, size += std::abs(one);
            }
            ASSERT_NEAR(sums(b, i, j), of_bytes, 1e-3 * (size + std::abs(of_bytes)) + 1e-4)
                << n << ' ' << symmetric << ' ' << b << ' ' << i << ' ' << j;
            if (mirrored) {
              ASSERT_EQ(R(b, i, j), R(b, j, i));
              ASSERT_EQ(byte_at(R_low, b, i, j), byte_at(R_low, b, j, i)) << n << ' ' << i << ' ' << j;
            } else {
              const double r = (product_at(V, false, Z, false, b, i, j, n) + of_bytes) / kLargest;
              const double rest = value_of(byte_at(R_low, b, i, j)) / kLowInBytes;
              ASSERT_NEAR(R(b, i, j) + rest, r,
                          std::abs(rest) / 14 + 1e-5 * std::abs(r) + 1e-3 * size / kLargest + 1e-3)
                  << n << ' ' << symmetric << ' ' << b << ' ' << i << ' ' << j;
            }
          }
        }
      }
    }
  }
}

TEST(Norms, OfSymmetricProductsAreThoseOfFrobenius) {
  if (!is_hopper()) GTEST_SKIP() << "needs compute capability 9.0";
  constexpr float kScale = 4, kUpdate = 3, kDiagonal = 2;
  constexpr int kCount = 2, kInner = 40;
  for (const int n : {1, 7, 64, 129, 300, 520}) {
    for (const bool down : {false, true}) {
      const Stack A(kCount, down ? kInner : n, down ? n : kInner, 1);
      Stack high(kCount, n, n, 2);
      const DeviceArray<float> squares{std::vector<float>(size_t{kCount} * norm_places(n))},
          factor{std::vector<float>(kCount)}, square{std::vector<float>(kCount)},
          update{std::vector<float>(kCount, kUpdate)};
      const DeviceArray<int> arrived{std::vector<int>(kCount)};
      Product product{.count = kCount, .rows = n, .columns = n, .A_down = down, .B_down = down, .symmetric = true};
      product.terms[0] = {A.operand(), A.operand(), kInner};
      product.epilogue = {
          .diagonal = kDiagonal, .high = high.there.data(), .pitch = high.pitch, .stride = int64_t{n} * high.pitch};
      product.epilogue.norms = {squares.data(), arrived.data(), factor.data(), square.data(), update.data(), kScale};
      ASSERT_CUDA(launch_hopper(&product, 1, {}, {}, 0, nullptr));
      ASSERT_CUDA(cudaDeviceSynchronize());
      for (int b = 0; b < kCount; ++b) {
        double sum = 0;
        for (int i = 0; i < n; ++i) {
          for (int j = 0; j < n; ++j)
            sum += std::pow(product_at(A, down, A, down, b, i, j, kInner) + (i == j ? kDiagonal : 0), 2);
        }
        const double expected = kScale / std::sqrt(sum);
        EXPECT_NEAR(factor.values()[b], expected, 1e-5 * expected) << n;
        EXPECT_NEAR(square.values()[b], expected * expected, 2e-5 * expected * expected) << n;
        EXPECT_NEAR(update.values()[b], kUpdate * std::sqrt(expected), 1e-5 * kUpdate * std::sqrt(expected)) << n;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Products, testing::Values(Kernel::Hopper, Kernel::Portable),
                         [](const auto& kernel) { return kernel.param == Kernel::Hopper ? "Hopper" : "Portable"; });

}  // namespace
}  // namespace prism::cuda::test
