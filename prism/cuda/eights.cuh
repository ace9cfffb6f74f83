#pragma once

// Loads and stores of eight adjacent elements, sixteen bytes at a time.

#include <cstring>

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

// Stores sixteen bytes. By assignment, the compiler may store them element by element.
template <class T>
__device__ void store_sixteen(void* target, const T& value) {
  uint4 words;
  static_assert(sizeof(value) == sizeof(words));
  memcpy(&words, &value, sizeof(words));
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(target), "r"(words.x), "r"(words.y), "r"(words.z),
               "r"(words.w)
               : "memory");
}

template <class T>
__device__ void store_eight(T* target, const float (&values)[kVector]) {
  constexpr int kPerStore = 16 / sizeof(T);
#pragma unroll
  for (int i = 0; i < kVector; i += kPerStore) {
    Pack<T, kPerStore> pack;
#pragma unroll
    for (int j = 0; j < kPerStore; ++j) pack.x[j] = from_float<T>(values[i + j]);
    store_sixteen(target + i, pack);
  }
}

}  // namespace prism::cuda
