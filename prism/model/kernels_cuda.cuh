#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "prism/cuda/blocks.cuh"
#include "prism/model/kernels_cuda.h"

// Helpers for the kernels of this folder: vector loads and stores, and launching.
namespace prism::model::cuda {

using prism::cuda::kWarp;
using prism::cuda::warp_sum;

constexpr int kWarps = 8;  // warps of a block in which each warp has a row
constexpr int kThreads = kWarp * kWarps;

// Four adjacent numbers: 8 bytes of bfloat16, 16 of float.
__device__ inline float4 load(const float* p) { return *reinterpret_cast<const float4*>(p); }
__device__ inline void store(float* p, float4 v) { *reinterpret_cast<float4*>(p) = v; }

__device__ inline float4 unpack(uint2 bits) {
  const float2 a = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&bits.x));
  const float2 b = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&bits.y));
  return {a.x, a.y, b.x, b.y};
}

__device__ inline uint2 pack(float4 v) {
  const __nv_bfloat162 a = __floats2bfloat162_rn(v.x, v.y), b = __floats2bfloat162_rn(v.z, v.w);
  return {*reinterpret_cast<const unsigned*>(&a), *reinterpret_cast<const unsigned*>(&b)};
}

__device__ inline float4 load(const Bfloat16* p) { return unpack(*reinterpret_cast<const uint2*>(p)); }
__device__ inline void store(Bfloat16* p, float4 v) { *reinterpret_cast<uint2*>(p) = pack(v); }

// Eight adjacent numbers: 16 bytes of bfloat16.
struct Eight {
  float v[8];
  __device__ float& operator[](int i) { return v[i]; }
  __device__ float operator[](int i) const { return v[i]; }
};

__device__ inline Eight join(float4 a, float4 b) { return {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}; }
__device__ inline Eight load8(const float* p) { return join(load(p), load(p + 4)); }

__device__ inline Eight load8(const Bfloat16* p) {
  const uint4 bits = *reinterpret_cast<const uint4*>(p);
  return join(unpack({bits.x, bits.y}), unpack({bits.z, bits.w}));
}

__device__ inline void store8(float* p, const Eight& v) {
  store(p, {v[0], v[1], v[2], v[3]});
  store(p + 4, {v[4], v[5], v[6], v[7]});
}

__device__ inline void store8(Bfloat16* p, const Eight& v) {
  const uint2 a = pack({v[0], v[1], v[2], v[3]}), b = pack({v[4], v[5], v[6], v[7]});
  *reinterpret_cast<uint4*>(p) = {a.x, a.y, b.x, b.y};
}

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(Bfloat16 x) { return __uint_as_float(unsigned{x} << 16); }

__device__ inline float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
__device__ inline float4 operator*(float4 a, float4 b) { return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w}; }
__device__ inline float4 operator*(float4 a, float s) { return {a.x * s, a.y * s, a.z * s, a.w * s}; }
__device__ inline float4 operator+(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }
__device__ inline float4 operator-(float4 a, float4 b) { return {a.x - b.x, a.y - b.y, a.z - b.z, a.w - b.w}; }

inline unsigned blocks_for(int64_t items, unsigned threads) {
  return static_cast<unsigned>((items + threads - 1) / threads);
}

// The block size for these groups of columns along x and as many rows along y as fit.
inline dim3 block_for(int64_t groups) {
  const auto across = static_cast<unsigned>(groups < kThreads ? groups : kThreads);
  return {across, kThreads / across};
}

// Runs `launch` on the target's device and returns its error.
template <class Launch>
int on_device(Target target, const Launch& launch) {
  int before = 0;
  if (const cudaError_t error = cudaGetDevice(&before)) return error;
  if (const cudaError_t error = before == target.device ? cudaSuccess : cudaSetDevice(target.device)) return error;
  launch(static_cast<cudaStream_t>(target.stream));
  const cudaError_t error = cudaGetLastError();
  if (before != target.device) cudaSetDevice(before);
  return error;
}

}  // namespace prism::model::cuda
