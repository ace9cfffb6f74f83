#pragma once

// Instructions of all GPUs that CUDA C++ has no names for. The tests have another version of this file, for CPUs.

#include <cstdint>

namespace prism::cuda {

// Asks for the cache line at an address, so that a later read finds it in the L2 cache.
__device__ inline void prefetch(const void* line) { asm volatile("prefetch.global.L2 [%0];" ::"l"(line)); }

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Transposes a block of 8×8 halves, of which each lane has two.
__device__ inline uint32_t transposed(uint32_t block) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(block));
  return result;
}

}  // namespace prism::cuda
