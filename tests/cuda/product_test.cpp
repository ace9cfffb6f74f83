// The product kernels against sums in float64.

#include "prism/cuda/product.h"

#include <array>
#include <cmath>
#include <random>
#include <string>
#include <tuple>

#include "tests/cuda/device.h"

namespace prism::cuda::test {
namespace {

int pitch_of(int columns) { return (columns + 7) / 8 * 8; }

// A stack of fp16 matrices here and on the device. What lies between the columns and the pitch is poison.
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
};

double product_at(const Stack& A, bool A_down, const Stack& B, bool B_down, int b, int i, int j, int k) {
  double sum = 0;
  for (int l = 0; l < k; ++l) sum += (A_down ? A(b, l, i) : A(b, i, l)) * (B_down ? B(b, l, j) : B(b, j, l));
  return sum;
}

// |error| of fp16 results of k terms of size 1.
double tolerance(int k, double value) { return 1e-3 * std::abs(value) + 1e-3 * std::sqrt(double(k)) + 1e-4; }

// The same where the low half is added: that of float32 sums, which tensor cores round towards zero.
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
      product.epilogue = {.alpha = 0.5f,
                          .diagonal = 3,
                          .high = high.there.data(),
                          .low = low.there.data(),
                          .pitch = high.pitch,
                          .stride = int64_t{n} * high.pitch};
      ASSERT_CUDA(launch(GetParam(), product));
      ASSERT_CUDA(cudaDeviceSynchronize());
      high.fetch();
      low.fetch();
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
  for (const int n : {1, 7, 129, 260, 520}) {
    for (const bool symmetric : {false, true}) {
      const Stack A(2, n, n, 1, true), C(2, n, n, 2, true), E(2, n, n, 4, true);
      const Stack& B = symmetric ? A : E;
      Stack high(2, n, n, 5), low(2, n, n, 6);
      Product product{.count = 2, .rows = n, .columns = n, .symmetric = symmetric};
      product.terms[0] = {A.operand(), B.operand(), n};
      const std::vector<float> factors = {2, -1};
      const DeviceArray<float> alpha(factors);
      product.epilogue = {.alpha = 0.25f,
                          .alpha_of = alpha.data(),
                          .c1 = 2,
                          .diagonal = 5,
                          .C1 = C.there.data(),
                          .high = high.there.data(),
                          .low = low.there.data(),
                          .pitch = high.pitch,
                          .stride = int64_t{n} * high.pitch};
      ASSERT_CUDA(launch(GetParam(), product));
      ASSERT_CUDA(cudaDeviceSynchronize());
      high.fetch();
      low.fetch();
      for (int b = 0; b < 2; ++b) {
        for (int i = 0; i < n; ++i) {
          for (int j = 0; j < n; ++j) {
            const double v =
                0.25 * factors[b] * product_at(A, false, B, false, b, i, j, n) + 2 * C(b, i, j) + (i == j ? 5 : 0);
            ASSERT_NEAR(high(b, i, j), v, tolerance(n, v)) << n << ' ' << symmetric << ' ' << b << ' ' << i << ' ' << j;
            ASSERT_NEAR(high(b, i, j) + low(b, i, j), v, exact_tolerance(n, v))
                << n << ' ' << symmetric << ' ' << b << ' ' << i << ' ' << j;
          }
        }
      }
    }
  }
}

TEST_P(Products, UpdateAFloat32MatrixInPlace) {
  for (const int n : {1, 65, 129, 300}) {
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
    const std::vector<float> alphas = {0.5f, 2}, betas = {0.25f, -1};
    const DeviceArray<float> alpha(alphas), beta(betas);
    Product product{.count = 2, .rows = n, .columns = n, .A_down = true, .B_down = true, .symmetric = true};
    product.terms[0] = {D.operand(), D.operand(), k};
    product.epilogue = {.alpha_of = alpha.data(), .reads_C = true, .writes_C = true, .beta_of = beta.data()};
    Pointers pointers{};
    for (int b = 0; b < 2; ++b) pointers.W[b] = C.data() + b * n * n;
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

// From the right: T·Q. From the left: Qᵀ·T.
TEST_P(Products, UpdateWeights) {
  for (const auto& [m, n] : std::vector<std::array<int, 2>>{{1, 1}, {7, 5}, {129, 64}, {300, 260}, {70, 516}}) {
    for (const bool left : {false, true}) {
      for (const bool skip : {false, true}) {
        const int k = left ? m : n;
        const Stack T(2, m, n, 1), Q(2, k, k, 2);
        std::vector<float> start(size_t(2) * m * n);
        for (size_t i = 0; i < start.size(); ++i) start[i] = static_cast<float>(i % 17) - 8;
        const DeviceArray<float> W(start), lr(std::vector<float>{0.125f}), alpha(std::vector<float>{0.5f, 2});
        const DeviceArray<char> apply(std::vector<char>{static_cast<char>(!skip)});
        Product product{.count = 2, .rows = m, .columns = n, .A_down = left, .B_down = true};
        product.terms[0] = {(left ? Q : T).operand(), (left ? T : Q).operand(), k};
        product.epilogue = {.alpha = 2, .alpha_of = alpha.data(), .weights = true};
        Pointers pointers{};
        for (int b = 0; b < 2; ++b) pointers.W[b] = W.data() + b * m * n;
        const Rates rates{{.device = lr.data()}, reinterpret_cast<const bool*>(apply.data()), 0.5f};
        ASSERT_CUDA(launch(GetParam(), product, pointers, rates));
        ASSERT_CUDA(cudaDeviceSynchronize());
        const auto result = W.values();
        for (int b = 0; b < 2; ++b) {
          for (int i = 0; i < m; ++i) {
            for (int j = 0; j < n; ++j) {
              const size_t at = (size_t(b) * m + i) * n + j;
              const double P =
                  left ? product_at(Q, true, T, true, b, i, j, k) : product_at(T, false, Q, true, b, i, j, k);
              const double expected =
                  skip ? start[at] : (1 - 0.125 * 0.5) * start[at] - 0.125 * 2 * (b == 0 ? 0.5 : 2) * P;
              ASSERT_NEAR(result[at], expected, 1e-3)
                  << m << ' ' << n << ' ' << left << ' ' << b << ' ' << i << ' ' << j;
            }
          }
        }
      }
    }
  }
}

TEST_P(Products, OfSeveralShapesShareALaunch) {
  if (GetParam() == Kernel::Portable) GTEST_SKIP() << "one launch each";
  std::vector<Stack> inputs, outputs;
  std::vector<Product> products;
  for (const int n : {300, 64, 129}) {
    inputs.emplace_back(3, n, n, n, true);
    outputs.emplace_back(3, n, n, 1);
    Product product{.count = 3, .rows = n, .columns = n, .symmetric = n != 64};
    product.terms[0] = {inputs.back().operand(), inputs.back().operand(), n};
    product.epilogue = {.high = outputs.back().there.data(),
                        .pitch = outputs.back().pitch,
                        .stride = int64_t{n} * outputs.back().pitch};
    products.push_back(product);
  }
  ASSERT_CUDA(launch_hopper(products.data(), 3, {}, {}, 0, nullptr));
  ASSERT_CUDA(cudaDeviceSynchronize());
  for (size_t s = 0; s < products.size(); ++s) {
    outputs[s].fetch();
    const int n = products[s].rows;
    for (int b = 0; b < 3; ++b) {
      for (int i = 0; i < n; ++i) {
        for (int j = 0; j < n; ++j) {
          const double expected = product_at(inputs[s], false, inputs[s], false, b, i, j, n);
          ASSERT_NEAR(outputs[s](b, i, j), expected, tolerance(n, expected)) << n << ' ' << b << ' ' << i << ' ' << j;
        }
      }
    }
  }
}

TEST_P(Products, OfManyMatricesAreAllFormed) {  // in several rounds of tiles, long ones and short ones
  if (GetParam() == Kernel::Portable) GTEST_SKIP() << "one launch each";
  std::vector<Stack> inputs, outputs;
  std::vector<Product> products;
  for (const auto& [count, n, k] : std::vector<std::array<int, 3>>{{40, 70, 16}, {90, 300, 40}}) {
    inputs.emplace_back(count, n, k, n);
    outputs.emplace_back(count, n, n, 1);
    Product product{.count = count, .rows = n, .columns = n, .symmetric = true};
    product.terms[0] = {inputs.back().operand(), inputs.back().operand(), k};
    product.epilogue = {.high = outputs.back().there.data(),
                        .pitch = outputs.back().pitch,
                        .stride = int64_t{n} * outputs.back().pitch};
    products.push_back(product);
  }
  ASSERT_CUDA(launch_hopper(products.data(), 2, {}, {}, 0, nullptr));
  ASSERT_CUDA(cudaDeviceSynchronize());
  for (size_t s = 0; s < products.size(); ++s) {
    outputs[s].fetch();
    const auto& [count, n, k] = std::tie(products[s].count, products[s].rows, products[s].terms[0].k);
    for (int b = 0; b < count; ++b) {
      for (int i = 0; i < n; ++i) {
        for (int j = 0; j <= i; ++j) {
          const double expected = product_at(inputs[s], false, inputs[s], false, b, i, j, k);
          ASSERT_NEAR(outputs[s](b, i, j), expected, tolerance(k, expected)) << n << ' ' << b << ' ' << i << ' ' << j;
          ASSERT_EQ(outputs[s](b, i, j), outputs[s](b, j, i)) << n << ' ' << b << ' ' << i << ' ' << j;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Products, testing::Values(Kernel::Hopper, Kernel::Portable),
                         [](const auto& kernel) { return kernel.param == Kernel::Hopper ? "Hopper" : "Portable"; });

}  // namespace
}  // namespace prism::cuda::test
