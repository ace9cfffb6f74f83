#pragma once

// Loads and stores of eight adjacent elements, sixteen bytes at a time.

#include "prism/cuda/weight_update.cuh"

namespace prism::cuda {

constexpr int kVector = 8;  // elements that a thread takes at a time if rows allow it

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T x[N];
};

__device__ inline bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

template <class T>
__device__ void load_eight(float (&values)[kVector], const T* source) {
  constexpr int kPerLoad = 16 / sizeof(T);
#pragma unroll
  for (int i = 0; i < kVector; i += kPerLoad) {
    const auto pack = *reinterpret_cast<const Pack<T, kPerLoad>*>(source + i);
#pragma unroll
    for (int j = 0; j < kPerLoad; ++j) values[i + j] = to_float(pack.x[j]);
  }
}

template <class T>
__device__ void store_eight(T* target, const float (&values)[kVector]) {
  constexpr int kPerStore = 16 / sizeof(T);
#pragma unroll
  for (int i = 0; i < kVector; i += kPerStore) {
    Pack<T, kPerStore> pack;
#pragma unroll
    for (int j = 0; j < kPerStore; ++j) pack.x[j] = from_float<T>(values[i + j]);
    *reinterpret_cast<Pack<T, kPerStore>*>(target + i) = pack;
  }
}

}  // namespace prism::cuda
