#pragma once

// Reads the scalars of a step, and updates weights and their float32 masters.

#include <cuda_bf16.h>

#include "prism/cuda/product.h"

namespace prism::cuda {

__device__ inline double read(const Number& number) {
  if (number.device == nullptr) return number.value;
  return number.is_double ? *static_cast<const double*>(number.device) : *static_cast<const float*>(number.device);
}

__device__ inline bool applies(const bool* apply) { return apply == nullptr || *apply; }

// keep = 1 − lr·λ and lr, as float32.
struct DecayAndRate {
  float keep, lr;
};

__device__ inline DecayAndRate decay_and_rate(const Rates& rates) {
  const double lr = read(rates.lr);
  return {static_cast<float>(1 - lr * rates.weight_decay), static_cast<float>(lr)};
}

// A number of an epilogue times its factor for a matrix, if it has one.
__device__ inline float factor(float value, const float* of, int matrix) {
  return of == nullptr ? value : value * of[matrix];
}

// Returns true if a product would only write C back: C ← 1·C + 0·P.
__device__ inline bool leaves_C(const Epilogue& e, int matrix) {
  return e.writes_C && e.reads_C && factor(e.alpha, e.alpha_of, matrix) == 0 && factor(e.beta, e.beta_of, matrix) == 1;
}

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__half x) { return __half2float(x); }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class T>
__device__ T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// Returns the master, or its 16-bit weight if that is no longer the rounded master: the user wrote the weight since the
// last step, and a stale master would undo it.
template <class T>
__device__ inline float current_master(float master, T weight) {
  const float rounded = to_float(weight);
  return to_float(from_float<T>(master)) == rounded ? master : rounded;
}

// W ← keep·W − lr·u. 16-bit weights are rounded once, at the end.
__device__ inline float updated(float W, float u, DecayAndRate factors) {
  return fmaf(-factors.lr, u, factors.keep * W);
}

}  // namespace prism::cuda
