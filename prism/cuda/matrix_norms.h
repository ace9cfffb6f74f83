#pragma once

// The norms that training records of each matrix, in one pass over gradient, weights and momentum. Free of torch headers,
// like steps.h.

#include <cstdint>
#include <vector>

#include "prism/cuda/steps.h"

namespace prism::cuda {

// The arrays of one matrix: float32, aligned to 16 bytes, `elements` a multiple of 4.
struct MeasuredMatrix {
  int64_t elements;
  const float *G, *W;
  const float* decayed;  // weights before the step, times 1 − lr·λ
  const float* M;        // null without momentum
};

constexpr int kNorms = 5;  // ‖G‖, ‖decayed − W‖, ‖W‖, ‖M/c‖, ‖G − M/c‖

// norms[i·matrices + j] = norm i of matrix j, in float64. c is the number at M_divisor, or 1 if that is null. All pointers
// are to device memory, also that of `allocate`, which must be valid until the launches are done. The order of each sum is
// fixed. Returns CUDA's error, 0 for success.
int measure_norms(const std::vector<MeasuredMatrix>& matrices, const float* M_divisor, const Allocate& allocate,
                  double* norms, int device, void* stream);

}  // namespace prism::cuda
