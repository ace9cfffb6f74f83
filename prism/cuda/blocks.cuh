#pragma once

// Helpers for the kernels of this folder and of prism/model: arrays of blocks, and sums over lanes and threads.

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "prism/cuda/instructions.cuh"

namespace prism::cuda {

constexpr int kWarp = 32;

// The array that a block belongs to: the last one whose first block does not come after it.
template <class FirstBlock>
__device__ int array_of_block(int arrays, int block, const FirstBlock& first_block) {
  int low = 0, high = arrays - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    first_block(middle) <= block ? low = middle : high = middle - 1;
  }
  return low;
}

// The sum over a warp, in every lane.
__device__ inline float warp_sum(float x) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
  return x;
}

// The value of the lane `offset` lanes further on.
template <class T>
__device__ T from_lane_after(const T& mine, int offset) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(uint32_t) == 0);
  uint32_t words[sizeof(T) / sizeof(uint32_t)];
  memcpy(words, &mine, sizeof(T));
  for (auto& word : words) word = __shfl_down_sync(~0u, word, offset);
  T result;
  memcpy(&result, words, sizeof(T));
  return result;
}

// Merges the values of a block's threads with merge(T& a, const T& b), in a fixed order. Valid in thread 0.
template <int Threads, class T, class Merge>
__device__ T merged_in_block(T mine, const Merge& merge) {
  __shared__ T warps[Threads / kWarp];
  for (int offset = kWarp / 2; offset > 0; offset /= 2) merge(mine, from_lane_after(mine, offset));
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < Threads / kWarp; ++w) merge(mine, warps[w]);
  }
  return mine;
}

// The sum over a block's threads, in a fixed order. Valid in thread 0.
template <int Threads>
__device__ double block_sum(double mine) {
  return merged_in_block<Threads>(mine, [](double& a, double b) { a += b; });
}

}  // namespace prism::cuda
