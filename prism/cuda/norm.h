#pragma once

// The factors that turn Gram matrices of trace 1 into ones of Frobenius norm 1, computed once the Gram matrices are
// formed. The matrices stay as they are; the first step of the iteration and the update apply the factors.

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include "prism/cuda/product.h"

namespace prism::cuda {

constexpr int kRowsOfSquares = 32;  // rows of a matrix that one block reads

struct NormMatrix {
  const __half* A;  // A_scale times the symmetric k×k matrix, rows of `pitch`
  int k, pitch;
  int first_block;
  int place;  // in `factor` and `square`
};

struct NormLaunch {
  NormMatrix matrices[kMaxMatrices] = {};
  int count = 0, blocks = 0;
  float A_scale = 1;
  double* squares = nullptr;                   // one per block
  float *factor = nullptr, *square = nullptr;  // 1/‖R‖_F and its square
  float* update = nullptr;                     // factor of each matrix's update; multiplied by √factor
};

cudaError_t launch_norm(const NormLaunch& launch, cudaStream_t stream);

}  // namespace prism::cuda
