// Compares norms of Gram matrices with sums in float64.

#include "prism/cuda/norm.h"

#include <cmath>
#include <limits>

#include "tests/cuda/device.h"

namespace prism::cuda::test {
namespace {

TEST(Norm, OfSeveralMatricesIsThatOfFrobenius) {
  if (!has_device()) GTEST_SKIP() << "needs a GPU";
  constexpr float kScale = 4, kUpdate = 3;
  const std::vector<int> sizes = {1, 7, 32, 129, 8, 300, 1030};  // the fifth is zero
  const auto count = static_cast<int>(sizes.size());
  NormLaunch launch{.count = count, .A_scale = kScale};
  std::vector<DeviceArray<__half>> memory;
  std::vector<double> norms;
  for (int m = 0; m < count; ++m) {
    const int k = sizes[m], pitch = (k + 7) / 8 * 8;
    std::vector<__half> A(size_t(k) * pitch, __float2half(std::numeric_limits<float>::quiet_NaN()));
    double sum = 0;
    for (int i = 0; i < k; ++i) {
      for (int j = 0; j < k; ++j) {
        const int high = std::max(i, j), low = std::min(i, j);
        const float x = m == 4 ? 0 : static_cast<float>((high * 7 + low * 3) % 23 - 11) / 2;
        A[size_t(i) * pitch + j] = __float2half(x);
        sum += double{x} * x;
      }
    }
    norms.push_back(std::sqrt(sum) / kScale);
    memory.emplace_back(A);
    launch.matrices[m] = {memory.back().data(), k, pitch, launch.blocks, count - 1 - m};
    launch.blocks += (k + kRowsOfSquares - 1) / kRowsOfSquares;
  }
  const DeviceArray<double> squares{std::vector<double>(launch.blocks)};
  const DeviceArray<float> factor{std::vector<float>(count)}, square{std::vector<float>(count)},
      update{std::vector<float>(count, kUpdate)};
  launch.squares = squares.data();
  launch.factor = factor.data();
  launch.square = square.data();
  launch.update = update.data();
  ASSERT_CUDA(launch_norm(launch, nullptr));
  ASSERT_CUDA(cudaDeviceSynchronize());
  for (int m = 0; m < count; ++m) {
    const double expected = m == 4 ? 1 : 1 / norms[m];
    EXPECT_NEAR(factor.values()[count - 1 - m], expected, 1e-5 * expected) << sizes[m];
    EXPECT_NEAR(square.values()[count - 1 - m], expected * expected, 1e-5 * expected * expected) << sizes[m];
    EXPECT_NEAR(update.values()[m], kUpdate * std::sqrt(expected), 1e-5 * kUpdate * std::sqrt(expected)) << sizes[m];
  }
}

}  // namespace
}  // namespace prism::cuda::test
