#pragma once

// Updates that change after they are formed: rows divided by their running sizes, or a fixed norm (prism/optim/spectral.h,
// `finished`). The update's product stores O as fp16, and these kernels read it twice: for the sizes of its rows, and
// to write the weights.

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include "prism/cuda/product.h"

namespace prism::cuda {

struct RescaleMatrix {
  const __half* O;  // kHeldUpdate·O, rows of `pitch`
  void* W;
  float* master;  // or null
  float* v;       // running mean of the squares of each row, or null: rows stay as they are
  Real weight;
  float scale;  // of the update
  int m, n, pitch;
  int first_row;  // among the rows of all matrices
  int first_block;
};

struct RescaleLaunch {
  RescaleMatrix matrices[kMaxMatrices] = {};
  int count = 0, rows = 0, blocks = 0;
  float row_beta = 0;
  bool fixed_norm = false;  // ‖O‖_F becomes √min(m, n) instead of staying as it is
  Rates rates;
  float *squares = nullptr, *row_factors = nullptr;  // of each row: ‖row of O‖² and 1/√v
  float* factors = nullptr;                          // of each matrix
};

// The number of blocks that write the weights of an m×n matrix.
int rescale_blocks(int64_t m, int64_t n);

// v ← β₂v + (1−β₂)·mean of O²;  X = O/√v;  W ← (1 − lr·λ)W − lr·scale·(norm/‖X‖_F)·X
cudaError_t launch_rescale(const RescaleLaunch& launch, cudaStream_t stream);

}  // namespace prism::cuda
