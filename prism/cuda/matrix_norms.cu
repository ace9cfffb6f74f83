#include <cuda_runtime.h>

#include <algorithm>

#include "prism/cuda/blocks.cuh"
#include "prism/cuda/matrix_norms.h"

namespace prism::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlockElements = 1 << 14;  // of a matrix that one block reads
constexpr int kLaunchMatrices = 64;          // as many as kernel parameters have room for

struct Launch {
  MeasuredMatrix matrices[kLaunchMatrices];
  int first_block[kLaunchMatrices + 1];
  int count;
  const float* M_divisor;
  double *parts, *norms;  // parts: kNorms for each block; norms: of the first matrix of this launch
  int64_t all;            // matrices of all launches
};

struct Squares {
  double sum[kNorms];
};

__device__ float4 load(const float* p) { return *reinterpret_cast<const float4*>(p); }
__device__ float4 operator-(float4 a, float4 b) { return {a.x - b.x, a.y - b.y, a.z - b.z, a.w - b.w}; }
__device__ float4 operator/(float4 a, float c) { return {a.x / c, a.y / c, a.z / c, a.w / c}; }
__device__ float square(float4 a) { return a.x * a.x + a.y * a.y + a.z * a.z + a.w * a.w; }

__device__ Squares block_sum(const Squares& mine) {
  return merged_in_block<kThreads>(mine, [](Squares& a, const Squares& b) {
    for (int i = 0; i < kNorms; ++i) a.sum[i] += b.sum[i];
  });
}

__global__ void __launch_bounds__(kThreads) squares_kernel(const __grid_constant__ Launch k) {
  const int index = array_of_block(k.count, static_cast<int>(blockIdx.x), [&](int i) { return k.first_block[i]; });
  const MeasuredMatrix& matrix = k.matrices[index];
  const int64_t begin = (static_cast<int>(blockIdx.x) - k.first_block[index]) * kBlockElements;
  const int64_t end = min(begin + kBlockElements, matrix.elements);
  const float c = k.M_divisor != nullptr ? *k.M_divisor : 1;
  float sum[kNorms] = {};  // of at most 64 squares
  for (int64_t i = begin + 4 * threadIdx.x; i < end; i += 4 * kThreads) {
    const float4 G = load(matrix.G + i), W = load(matrix.W + i), before = load(matrix.decayed + i);
    sum[0] += square(G);
    sum[1] += square(before - W);
    sum[2] += square(W);
    if (matrix.M == nullptr) continue;
    const float4 M = load(matrix.M + i) / c;
    sum[3] += square(M);
    sum[4] += square(G - M);
  }
  Squares mine;
  for (int i = 0; i < kNorms; ++i) mine.sum[i] = sum[i];
  const Squares all = block_sum(mine);
  if (threadIdx.x != 0) return;
  for (int i = 0; i < kNorms; ++i) k.parts[blockIdx.x * int64_t{kNorms} + i] = all.sum[i];
}

__global__ void __launch_bounds__(kThreads) join_kernel(const __grid_constant__ Launch k) {
  Squares mine = {};
  for (int block = k.first_block[blockIdx.x] + static_cast<int>(threadIdx.x); block < k.first_block[blockIdx.x + 1];
       block += kThreads) {
    for (int i = 0; i < kNorms; ++i) mine.sum[i] += k.parts[block * int64_t{kNorms} + i];
  }
  const Squares all = block_sum(mine);
  if (threadIdx.x != 0) return;
  for (int i = 0; i < kNorms; ++i) k.norms[i * k.all + blockIdx.x] = sqrt(all.sum[i]);
}

int blocks_of(const MeasuredMatrix& matrix) {
  return static_cast<int>((matrix.elements + kBlockElements - 1) / kBlockElements);
}

}  // namespace

int measure_norms(const std::vector<MeasuredMatrix>& matrices, const float* M_divisor, const Allocate& allocate,
                  double* norms, int device, void* stream) {
  int before = 0;
  if (const cudaError_t error = cudaGetDevice(&before)) return error;
  if (const cudaError_t error = cudaSetDevice(device)) return error;
  auto* const on = static_cast<cudaStream_t>(stream);
  size_t all_blocks = 0;
  for (const auto& matrix : matrices) all_blocks += blocks_of(matrix);
  auto* parts = static_cast<double*>(allocate(sizeof(double) * kNorms * all_blocks));
  for (size_t first = 0; first < matrices.size(); first += kLaunchMatrices) {
    Launch launch{};
    launch.count = static_cast<int>(std::min<size_t>(kLaunchMatrices, matrices.size() - first));
    for (int i = 0; i < launch.count; ++i) {
      launch.matrices[i] = matrices[first + i];
      launch.first_block[i + 1] = launch.first_block[i] + blocks_of(launch.matrices[i]);
    }
    launch.M_divisor = M_divisor;
    launch.parts = parts;
    launch.norms = norms + first;
    launch.all = static_cast<int64_t>(matrices.size());
    const int blocks = launch.first_block[launch.count];
    squares_kernel<<<blocks, kThreads, 0, on>>>(launch);
    join_kernel<<<launch.count, kThreads, 0, on>>>(launch);
    parts += int64_t{kNorms} * blocks;
  }
  const cudaError_t error = cudaGetLastError();
  if (before != device) cudaSetDevice(before);
  return error;
}

}  // namespace prism::cuda
