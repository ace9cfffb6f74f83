#include "prism/cuda/blocks.cuh"
#include "prism/cuda/eights.cuh"
#include "prism/cuda/rescale.h"

namespace prism::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kBlockElements = 8192;  // weights that one block writes

// Sums the squares of each row, one warp a row, and advances v.
__global__ void __launch_bounds__(kThreads) rows_kernel(const __grid_constant__ RescaleLaunch launch) {
  const int index = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (index >= launch.rows) return;
  const RescaleMatrix& matrix =
      launch.matrices[array_of_block(launch.count, index, [&](int i) { return launch.matrices[i].first_row; })];
  const int row = index - matrix.first_row, lane = static_cast<int>(threadIdx.x) % kWarp;
  const __half* O = matrix.O + static_cast<int64_t>(row) * matrix.pitch;
  float mine = 0;
  for (int column = lane * kVector; column < matrix.n; column += kWarp * kVector) {
    float values[kVector];
    load_eight(values, O + column);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (column + i < matrix.n) mine = fmaf(values[i], values[i], mine);
    }
  }
  const float squares = warp_sum(mine) / (kHeldUpdate * kHeldUpdate);
  if (lane != 0) return;
  float factor = 1;
  if (matrix.v != nullptr) {
    const float mean = squares / static_cast<float>(matrix.n), old = matrix.v[row];
    const float v = fmaf(1 - launch.row_beta, mean - old, old);
    if (v != 0) factor = 1 / sqrtf(v);
    if (applies(launch.rates.apply)) matrix.v[row] = v;
  }
  launch.squares[index] = squares;
  launch.row_factors[index] = factor;
}

struct Squares {
  double O, X;
};

// The factor that gives X its norm, one block a matrix.
__global__ void __launch_bounds__(kThreads) norm_kernel(const __grid_constant__ RescaleLaunch launch) {
  const RescaleMatrix& matrix = launch.matrices[blockIdx.x];
  Squares mine{0, 0};
  for (int row = static_cast<int>(threadIdx.x); row < matrix.m; row += kThreads) {
    const double squares = launch.squares[matrix.first_row + row], factor = launch.row_factors[matrix.first_row + row];
    mine.O += squares;
    mine.X += squares * factor * factor;
  }
  const Squares sum = merged_in_block<kThreads>(mine, [](Squares& a, const Squares& b) { a.O += b.O, a.X += b.X; });
  if (threadIdx.x != 0) return;
  const double wanted = launch.fixed_norm ? min(matrix.m, matrix.n) : sum.O;
  launch.factors[blockIdx.x] = sum.X > 0 ? static_cast<float>(sqrt(wanted / sum.X)) : 0;
}

// Writes the weights of one block's elements.
template <class T>
__device__ void write_weights(const RescaleLaunch& launch, const RescaleMatrix& matrix, float factor) {
  auto* W = static_cast<T*>(matrix.W);
  const DecayAndRate rates = decay_and_rate(launch.rates);
  const float* row_factors = launch.row_factors + matrix.first_row;
  const int64_t begin = static_cast<int64_t>(static_cast<int>(blockIdx.x) - matrix.first_block) * kBlockElements;
  const int64_t end = min(begin + kBlockElements, static_cast<int64_t>(matrix.m) * matrix.n);
  const auto next = [&](float w, float master, float held, int64_t row) {
    if (matrix.master != nullptr) w = current_master(master, from_float<T>(w));
    return updated(w, factor * row_factors[row] * held, rates);
  };
  if (matrix.n % kVector == 0 && is_aligned(W) && is_aligned(matrix.master)) {
    for (int64_t i = begin + threadIdx.x * kVector; i < end; i += kThreads * kVector) {
      const int64_t row = i / matrix.n;
      float w[kVector], master[kVector] = {}, held[kVector];
      load_eight(w, W + i);
      if (matrix.master != nullptr) load_eight(master, matrix.master + i);
      load_eight(held, matrix.O + row * matrix.pitch + i % matrix.n);
#pragma unroll
      for (int k = 0; k < kVector; ++k) w[k] = next(w[k], master[k], held[k], row);
      if (matrix.master != nullptr) store_eight(matrix.master + i, w);
      store_eight(W + i, w);
    }
    return;
  }
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const int64_t row = i / matrix.n;
    const float held = __half2float(matrix.O[row * matrix.pitch + i % matrix.n]);
    const float w = next(to_float(W[i]), matrix.master != nullptr ? matrix.master[i] : 0, held, row);
    if (matrix.master != nullptr) matrix.master[i] = w;
    W[i] = from_float<T>(w);
  }
}

__global__ void __launch_bounds__(kThreads) write_kernel(const __grid_constant__ RescaleLaunch launch) {
  if (!applies(launch.rates.apply)) return;
  const int index =
      array_of_block(launch.count, static_cast<int>(blockIdx.x), [&](int i) { return launch.matrices[i].first_block; });
  const RescaleMatrix& matrix = launch.matrices[index];
  const float factor = matrix.scale * launch.factors[index] / kHeldUpdate;
  switch (matrix.weight) {
    case Real::Float32:
      return write_weights<float>(launch, matrix, factor);
    case Real::Float16:
      return write_weights<__half>(launch, matrix, factor);
    case Real::BFloat16:
      return write_weights<__nv_bfloat16>(launch, matrix, factor);
  }
}

}  // namespace

int rescale_blocks(int64_t m, int64_t n) { return static_cast<int>((m * n + kBlockElements - 1) / kBlockElements); }

cudaError_t launch_rescale(const RescaleLaunch& launch, cudaStream_t stream) {
  rows_kernel<<<(launch.rows + kWarps - 1) / kWarps, kThreads, 0, stream>>>(launch);
  norm_kernel<<<launch.count, kThreads, 0, stream>>>(launch);
  write_kernel<<<launch.blocks, kThreads, 0, stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace prism::cuda
