// The elementwise part of whitening: the iteration's first matrix A from the covariance, the root as an fp16 operand, and
// the factors of X and of its Gram matrix.

#include "prism/cuda/blocks.cuh"
#include "prism/cuda/eights.cuh"
#include "prism/cuda/whitening.h"

namespace prism::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

__device__ bool is_due(const WhiteningLaunch& launch, const WhiteningMatrix& matrix) {
  return fmod(static_cast<double>(*matrix.step) - 1, launch.root_every) == 0;
}

__device__ int matrix_of_block(const WhiteningLaunch& launch) {
  return array_of_block(launch.count, static_cast<int>(blockIdx.x),
                        [&](int i) { return launch.matrices[i].first_block; });
}

// Calls row(i) for the rows of a block, each with one warp.
template <class Row>
__device__ void for_rows(int block, int rows, Row&& row) {
  const int first = block * kRowsOfWhitening, end = min(first + kRowsOfWhitening, rows);
  for (int i = first + static_cast<int>(threadIdx.x) / kWarp; i < end; i += kWarps) row(i);
}

// Returns true if eight elements of an n×n float32 matrix can be read at a time, wherever a row begins.
__device__ bool takes_eights(const float* matrix, int n) { return n % kVector == 0 && is_aligned(matrix); }

// Calls eights(column) for a lane's groups of eight columns, or one(column) for its columns.
template <class Eights, class One>
__device__ void for_columns(bool takes_eights, int n, Eights&& eights, One&& one) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (takes_eights) {
    for (int column = lane * kVector; column < n; column += kWarp * kVector) eights(column);
  } else {
    for (int column = lane; column < n; column += kWarp) one(column);
  }
}

// The squares and the trace of a block's rows of C, if its root is due.
__global__ void __launch_bounds__(kThreads) covariance_kernel(const __grid_constant__ WhiteningLaunch launch) {
  const WhiteningMatrix& matrix = launch.matrices[matrix_of_block(launch)];
  if (!is_due(launch, matrix)) return;
  const int n = matrix.n;
  const bool by_eights = takes_eights(matrix.C, n);
  double squares = 0, trace = 0;
  for_rows(static_cast<int>(blockIdx.x) - matrix.first_block, n, [&](int row) {
    const float* C = matrix.C + static_cast<int64_t>(row) * n;
    float sum = 0;
    for_columns(
        by_eights, n,
        [&](int column) {
          float values[kVector];
          load_eight(values, C + column);
#pragma unroll
          for (int i = 0; i < kVector; ++i) sum = fmaf(values[i], values[i], sum);
        },
        [&](int column) { sum = fmaf(C[column], C[column], sum); });
    squares += sum;
    if (threadIdx.x % kWarp == 0) trace += C[row];
  });
  squares = block_sum<kThreads>(squares);
  __syncthreads();  // the sums of the warps have been read
  trace = block_sum<kThreads>(trace);
  if (threadIdx.x != 0) return;
  launch.squares[blockIdx.x] = squares;
  launch.traces[blockIdx.x] = trace;
}

// The factor of A and the scale of the root, one block a matrix (prism/linalg/shaping.cpp, `whitening_root`): for
// R = C/size with size = bound²·‖C‖, the root of Ĉ = C_scale²·mean·C is Q/(C_scale·√(mean·size)).
__global__ void __launch_bounds__(kThreads) start_factor_kernel(const __grid_constant__ WhiteningLaunch launch) {
  const int index = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const WhiteningMatrix& matrix = launch.matrices[index];
  for (int i = index * kThreads + thread; i < launch.counter_count; i += launch.count * kThreads)
    launch.counters[i] = 0;
  static_assert(kMaxMatrices <= kThreads);
  const int any = __syncthreads_or(thread < launch.count && is_due(launch, launch.matrices[thread]));
  if (index == 0 && thread == 0) *launch.due = any;
  const bool due = is_due(launch, matrix);
  double sum = 0;
  if (due) {
    const int last = index + 1 < launch.count ? launch.matrices[index + 1].first_block : launch.blocks;
    const double* parts = launch.by_norm ? launch.squares : launch.traces;
    for (int b = matrix.first_block + thread; b < last; b += kThreads) sum += parts[b];
    sum = block_sum<kThreads>(sum);
  }
  if (thread != 0) return;
  float scale = *matrix.root_scale;
  if (due) {
    const double norm = launch.by_norm ? sqrt(sum) : sum;
    const double size = launch.bound * launch.bound * (norm == 0 ? 1 : norm);
    const double covered = ceil(*matrix.step / launch.covariance_every) * launch.covariance_every;
    const double mean = 1 / (1 - pow(launch.covariance_beta, covered));
    scale = static_cast<float>(*matrix.C_scale * sqrt(mean * size));
    launch.start[index] = static_cast<float>(launch.A_scale / size);
    if (applies(launch.apply)) *matrix.root_scale = scale;
  }
  launch.scales[index] = scale == 0 ? 1 : scale;
}

// A = A_scale·C/size in two halves.
__global__ void __launch_bounds__(kThreads) start_kernel(const __grid_constant__ WhiteningLaunch launch) {
  const int index = matrix_of_block(launch);
  const WhiteningMatrix& matrix = launch.matrices[index];
  if (!is_due(launch, matrix)) return;
  const int n = matrix.n;
  const bool by_eights = takes_eights(matrix.C, n);
  const float factor = launch.start[index];
  for_rows(static_cast<int>(blockIdx.x) - matrix.first_block, n, [&](int row) {
    const float* C = matrix.C + static_cast<int64_t>(row) * n;
    const int64_t target = static_cast<int64_t>(row) * matrix.pitch;
    for_columns(
        by_eights, n,
        [&](int column) {
          float v[kVector], low[kVector];
          load_eight(v, C + column);
#pragma unroll
          for (int i = 0; i < kVector; ++i) {
            v[i] *= factor;
            low[i] = v[i] - __half2float(__float2half_rn(v[i]));
          }
          store_eight(matrix.A + target + column, v);
          if (matrix.A_low != nullptr) store_eight(matrix.A_low + target + column, low);
        },
        [&](int column) {
          const float v = factor * C[column];
          const __half high = __float2half_rn(v);
          matrix.A[target + column] = high;
          if (matrix.A_low != nullptr) matrix.A_low[target + column] = __float2half_rn(v - __half2float(high));
        });
  });
}

// The power of two of the root as an operand, one block a matrix. The largest entry of a positive semidefinite matrix is
// on its diagonal; it becomes 2¹³ … 2¹⁴.
__global__ void __launch_bounds__(kThreads) power_kernel(const __grid_constant__ WhiteningLaunch launch) {
  const int index = static_cast<int>(blockIdx.x);
  const WhiteningMatrix& matrix = launch.matrices[index];
  const bool due = is_due(launch, matrix);
  float largest = 0;
  for (int64_t i = threadIdx.x; i < matrix.n; i += kThreads) {
    const float x = due ? __half2float(matrix.Q[i * matrix.pitch + i]) / launch.Q_scale : matrix.root[i * matrix.n + i];
    largest = fmaxf(largest, fabsf(x));
  }
  largest = merged_in_block<kThreads>(largest, [](float& a, float b) { a = fmaxf(a, b); });
  if (threadIdx.x != 0) return;
  int exponent = 14;
  if (largest > 0) frexpf(largest, &exponent);
  launch.powers[index] = exp2f(static_cast<float>(max(-120, min(120, 14 - exponent))));
  launch.norms[index] = 0;
}

// Stores the root if it was due, and writes it as an operand. Q_scale and `powers` are powers of two: a stored root gives
// the same operand as the one just computed.
__global__ void __launch_bounds__(kThreads) operand_kernel(const __grid_constant__ WhiteningLaunch launch) {
  const int index = matrix_of_block(launch);
  const WhiteningMatrix& matrix = launch.matrices[index];
  const int n = matrix.n;
  const bool due = is_due(launch, matrix), stores = due && applies(launch.apply);
  const bool by_eights = takes_eights(matrix.root, n);
  const float power = launch.powers[index], unscale = 1 / launch.Q_scale;
  for_rows(static_cast<int>(blockIdx.x) - matrix.first_block, n, [&](int row) {
    float* root = matrix.root + static_cast<int64_t>(row) * n;
    const __half* Q = matrix.Q + static_cast<int64_t>(row) * matrix.pitch;
    __half* P = matrix.P + static_cast<int64_t>(row) * matrix.pitch;
    float squares = 0;
    for_columns(
        by_eights, n,
        [&](int column) {
          float v[kVector];
          if (due) {
            load_eight(v, Q + column);
#pragma unroll
            for (int i = 0; i < kVector; ++i) v[i] *= unscale;
            if (stores) store_eight(root + column, v);
          } else {
            load_eight(v, root + column);
          }
#pragma unroll
          for (int i = 0; i < kVector; ++i) {
            v[i] *= power;
            squares = fmaf(v[i], v[i], squares);
          }
          store_eight(P + column, v);
        },
        [&](int column) {
          const float x = due ? __half2float(Q[column]) * unscale : root[column];
          if (stores) root[column] = x;
          squares = fmaf(x * power, x * power, squares);
          P[column] = __float2half_rn(x * power);
        });
    squares = warp_sum(squares);
    // The bits of numbers that are not negative are ordered as the numbers are.
    if (threadIdx.x % kWarp == 0) atomicMax(launch.norms + index, __float_as_int(sqrtf(squares)));
  });
}

// The power of two of X, one thread a matrix. The entries of the operand of T are at most 2¹⁴, so those of TP are at most
// 2¹⁴·√n times the largest norm of a row of P; X then stays below 2¹⁵.
__global__ void alpha_kernel(const __grid_constant__ WhiteningLaunch launch) {
  const int index = static_cast<int>(threadIdx.x);
  if (index >= launch.count) return;
  const WhiteningMatrix& matrix = launch.matrices[index];
  const double norm = __int_as_float(launch.norms[index]);
  const double alpha = norm > 0 ? exp2(floor(1 - log2(norm * sqrt(static_cast<double>(matrix.n))))) : 1;
  launch.alphas[index] = static_cast<float>(alpha);
  launch.X_powers[index] = alpha * launch.factors.T[matrix.index] * launch.powers[index] * launch.scales[index];
}

__global__ void __launch_bounds__(kThreads) X_kernel(const __grid_constant__ WhiteningLaunch launch) {
  const WhiteningMatrix& matrix = launch.matrices[array_of_block(
      launch.count, static_cast<int>(blockIdx.x), [&](int i) { return launch.matrices[i].first_X_block; })];
  double squares = 0;
  for_rows(static_cast<int>(blockIdx.x) - matrix.first_X_block, matrix.m, [&](int row) {
    const __half* X = matrix.X + static_cast<int64_t>(row) * matrix.pitch;
    float sum = 0;
    for_columns(
        matrix.n % kVector == 0, matrix.n,
        [&](int column) {
          float values[kVector];
          load_eight(values, X + column);
#pragma unroll
          for (int i = 0; i < kVector; ++i) sum = fmaf(values[i], values[i], sum);
        },
        [&](int column) { sum = fmaf(__half2float(X[column]), __half2float(X[column]), sum); });
    squares += sum;
  });
  squares = block_sum<kThreads>(squares);
  if (threadIdx.x == 0) launch.X_squares[blockIdx.x] = squares;
}

// The factors of R = (XXᵀ + γ²I)/trace and of the update, one block a matrix.
__global__ void __launch_bounds__(kThreads) gram_factor_kernel(const __grid_constant__ WhiteningLaunch launch) {
  const int index = static_cast<int>(blockIdx.x);
  const WhiteningMatrix& matrix = launch.matrices[index];
  const int last = index + 1 < launch.count ? launch.matrices[index + 1].first_X_block : launch.X_blocks;
  double squares = 0;
  for (int b = matrix.first_X_block + static_cast<int>(threadIdx.x); b < last; b += kThreads)
    squares += launch.X_squares[b];
  squares = block_sum<kThreads>(squares);
  if (threadIdx.x != 0) return;
  const double gamma = read(launch.gamma) * matrix.gamma_scale *
                       (matrix.gamma_factor == nullptr ? 1. : *matrix.gamma_factor) * launch.X_powers[index];
  const double trace = squares + matrix.m * gamma * gamma;  // of the operand's Gram matrix
  const SignalFactors& factors = launch.factors;
  factors.gram_alpha[matrix.index] = trace > 0 ? static_cast<float>(1 / trace) : 0;
  factors.diagonal[matrix.index] = trace > 0 ? static_cast<float>(gamma * gamma / trace) : 0;
  factors.update[matrix.index] = trace > 0 ? static_cast<float>(1 / sqrt(trace)) : 0;
}

}  // namespace

cudaError_t launch_root_start(const WhiteningLaunch& launch, cudaStream_t stream) {
  covariance_kernel<<<launch.blocks, kThreads, 0, stream>>>(launch);
  start_factor_kernel<<<launch.count, kThreads, 0, stream>>>(launch);
  start_kernel<<<launch.blocks, kThreads, 0, stream>>>(launch);
  return cudaGetLastError();
}

cudaError_t launch_root_operands(const WhiteningLaunch& launch, cudaStream_t stream) {
  power_kernel<<<launch.count, kThreads, 0, stream>>>(launch);
  operand_kernel<<<launch.blocks, kThreads, 0, stream>>>(launch);
  alpha_kernel<<<1, kMaxMatrices, 0, stream>>>(launch);
  return cudaGetLastError();
}

cudaError_t launch_whitened_factors(const WhiteningLaunch& launch, cudaStream_t stream) {
  X_kernel<<<launch.X_blocks, kThreads, 0, stream>>>(launch);
  gram_factor_kernel<<<launch.count, kThreads, 0, stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace prism::cuda
