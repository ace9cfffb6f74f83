#pragma once

// Included before kernels that are compiled as C++: the words and functions of CUDA C++ that they use.

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/cuda/emulator/machine.h"

// CUDA's headers define some of these for other compilers, and declare some of the functions.
#undef __device__
#undef __host__
#undef __global__
#undef __shared__
#undef __forceinline__
#undef __launch_bounds__
#undef __cluster_dims__
#undef __grid_constant__
#define __device__
#define __host__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__

#define threadIdx (::prism::cuda::emulator::current().index)
#define blockIdx (::prism::cuda::emulator::current().block_index)
static const auto& gridDim = ::prism::cuda::emulator::grid();

using std::max;
using std::min;

namespace prism::cuda::emulator {

// The value of lane `from` of the warp.
template <class T>
T exchanged(T mine, int from) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  Warp& warp = current().warp();
  memcpy(&warp.values[static_cast<size_t>(current().lane())], &mine, sizeof(T));
  warp.meeting.meet(kWarp);
  T result;
  memcpy(&result, &warp.values[static_cast<size_t>(from)], sizeof(T));
  warp.meeting.meet(kWarp);  // the values have been read
  return result;
}

template <class To, class From>
To bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

// Four of the bytes of b:a.
inline uint32_t permuted_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<uint32_t>(bytes >> (8 * (selector >> (4 * i) & 7)) & 0xff) << (8 * i);
  return result;
}

}  // namespace prism::cuda::emulator

inline void __syncwarp() { prism::cuda::emulator::current().warp().meeting.meet(prism::cuda::emulator::kWarp); }
inline void __syncthreads() { prism::cuda::emulator::fail("__syncthreads is not emulated"); }
template <class T>
T __shfl_sync(unsigned /*all*/, T mine, int from) {
  return prism::cuda::emulator::exchanged(mine, from);
}
template <class T>
T __shfl_down_sync(unsigned /*all*/, T mine, int offset) {
  const int from = prism::cuda::emulator::current().lane() + offset;
  return prism::cuda::emulator::exchanged(mine, from < prism::cuda::emulator::kWarp ? from : from - offset);
}
template <class T>
T __shfl_xor_sync(unsigned /*all*/, T mine, int mask) {
  return prism::cuda::emulator::exchanged(mine, prism::cuda::emulator::current().lane() ^ mask);
}
inline int __any_sync(unsigned /*all*/, bool mine) {
  return prism::cuda::emulator::current().warp().meeting.meet(prism::cuda::emulator::kWarp, mine);
}
inline unsigned __reduce_or_sync(unsigned all, unsigned x) {
  for (int mask = 1; mask < prism::cuda::emulator::kWarp; mask *= 2) x |= __shfl_xor_sync(all, x, mask);
  return x;
}
// All threads of the product kernels.
inline int __syncthreads_or(int mine) {
  constexpr int kThreads = 3 * prism::cuda::emulator::kGroup;
  return prism::cuda::emulator::current().block->named[0].meet(kThreads, mine != 0);
}

#define atomicAdd(counter, x) ::prism::cuda::emulator::add(counter, x)
#define __nanosleep(nanoseconds) ::prism::cuda::emulator::poll()
#define __byte_perm(a, b, selector) ::prism::cuda::emulator::permuted_bytes(a, b, selector)
#define __float_as_int(x) ::prism::cuda::emulator::bits<int>(x)
#define __int_as_float(x) ::prism::cuda::emulator::bits<float>(x)
#define rsqrtf(x) (1 / std::sqrt(x))

template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* /*kernel*/, cudaFuncAttribute /*attribute*/, int /*value*/) {
  return cudaSuccess;
}
template <class... Expected, class Parameters>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Expected...),
                               const Parameters& parameters) {
  prism::cuda::emulator::run(static_cast<int>(config->gridDim.x), static_cast<int>(config->blockDim.x),
                             config->dynamicSmemBytes, [&] { kernel(parameters); });
  return cudaSuccess;
}
