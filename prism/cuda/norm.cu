// Frobenius norms. Only the high halves of a split matrix are read: they leave out 2⁻¹¹ of an entry, and the
// polynomials that need a norm tolerate a hundredth.

#include "prism/cuda/blocks.cuh"
#include "prism/cuda/norm.h"

namespace prism::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

// A lane's part of the sum of squares of a row up to the diagonal; squares left of the diagonal count twice.
__device__ float squares_of_row(const __half* row, int diagonal) {
  float sum = 0;
  for (int column = threadIdx.x % kWarp * 8; column <= diagonal; column += kWarp * 8) {
    const uint4 eight = *reinterpret_cast<const uint4*>(row + column);
    const auto* values = reinterpret_cast<const __half*>(&eight);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float x = __half2float(values[i]);
      if (column + i < diagonal) sum = fmaf(2 * x, x, sum);
      if (column + i == diagonal) sum = fmaf(x, x, sum);
    }
  }
  return sum;
}

__global__ void __launch_bounds__(kThreads) squares_kernel(const __grid_constant__ NormLaunch launch) {
  const NormMatrix& matrix = launch.matrices[array_of_block(launch.count, static_cast<int>(blockIdx.x),
                                                            [&](int i) { return launch.matrices[i].first_block; })];
  const int first = (static_cast<int>(blockIdx.x) - matrix.first_block) * kRowsOfSquares;
  const int end = min(first + kRowsOfSquares, matrix.k);
  double mine = 0;
  for (int row = first + static_cast<int>(threadIdx.x) / kWarp; row < end; row += kWarps)
    mine += squares_of_row(matrix.A + static_cast<int64_t>(row) * matrix.pitch, row);
  const double sum = block_sum<kThreads>(mine);
  if (threadIdx.x == 0) launch.squares[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads) rescale_kernel(const __grid_constant__ NormLaunch launch) {
  const int index = static_cast<int>(blockIdx.x);
  const NormMatrix& matrix = launch.matrices[index];
  const int last = index + 1 < launch.count ? launch.matrices[index + 1].first_block : launch.blocks;
  double mine = 0;
  for (int b = matrix.first_block + static_cast<int>(threadIdx.x); b < last; b += kThreads) mine += launch.squares[b];
  const double sum = block_sum<kThreads>(mine);
  if (threadIdx.x != 0) return;
  const double factor = sum == 0 ? 1 : launch.A_scale / sqrt(sum);
  launch.factor[matrix.place] = static_cast<float>(factor);
  launch.square[matrix.place] = static_cast<float>(factor * factor);
  launch.update[index] *= static_cast<float>(sqrt(factor));
}

}  // namespace

cudaError_t launch_norm(const NormLaunch& launch, cudaStream_t stream) {
  squares_kernel<<<launch.blocks, kThreads, 0, stream>>>(launch);
  rescale_kernel<<<launch.count, kThreads, 0, stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace prism::cuda
