#pragma once

// Batched products of fp16 matrices with float32 accumulation, and the epilogue of each result. One launch takes
// several stacks of different shapes. There are two kernels: product_hopper.cu for compute capability 9.0,
// product_portable.cu for 8.0 and everything else.

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <vector>

#include "prism/cuda/steps.h"

namespace prism::cuda {

constexpr int kMaxProducts = 8;    // stacks in one launch
constexpr int kMaxMatrices = 128;  // matrices of one chunk of a step

// The factor of an update held in fp16. Its singular values are near 1 or below, so there is room on both sides.
constexpr float kHeldUpdate = 1024;

// A stack of row-major matrices, `pitch` elements from row to row (a multiple of 8) and `stride` from matrix to matrix.
struct Operand {
  const __half* data = nullptr;
  int pitch = 0;
  int64_t stride = 0;
};

// One term of a product: A and B with k inner indices.
//
// Terms that need little precision may be of matrices in bytes: e4m3 numbers in the place of an fp16 matrix, whose rows
// begin at the same addresses. In every sixteen columns the order is 0, 8, 1, 9, …, 7, 15, in which the kernel can store
// a block and its transpose alike; a product of two such matrices does not depend on it. Columns up to a multiple of
// sixteen are zero. Only the first term of a product in a sequence may be in bytes, with the kernel for compute
// capability 9.0: sums of bytes are less exact than others, so they must not be added to larger ones.
struct Term {
  Operand A, B;
  int k = 0;
  bool in_bytes = false;
};

// The factor of low halves in bytes. Their partners in a product are divided by it. Matrices are at most 2¹⁴ and low
// halves 4, so both are at most 256; e4m3 ends at 448, and larger numbers become that.
constexpr float kLowInBytes = 64;

// The Frobenius norms of symmetric results, which the kernel for compute capability 9.0 can sum as it forms them.
struct Norms {
  float* squares = nullptr;                    // norm_places for each matrix; null: no norms
  int* arrived = nullptr;                      // of each matrix; 0 before the launch
  float *factor = nullptr, *square = nullptr;  // of each matrix: scale/‖v‖_F, 1 for v = 0, and its square
  float* update = nullptr;                     // of each matrix; multiplied by √factor
  float scale = 1;
};

// The step from the sums P(i, j) to the result.
//
// A matrix: v = alpha·P + c1·C1 + beta·C + diagonal·I, stored as fp16, high = v and low = v − high, or as float32 in C.
//
// Weights: W ← (1 − lr·λ)W − lr·scale·alpha·P, where alpha·P may be rounded to fp16 and must be at most 64.
//
// alpha, c1, beta and diagonal may have a factor for each matrix. They include the powers of two by which fp16 operands are
// scaled, which keep the entries that matter, and their low halves, within fp16's normal numbers.
struct Epilogue {
  float alpha = 1;
  const float* alpha_of = nullptr;

  float c1 = 0, diagonal = 0;
  const float *c1_of = nullptr, *diagonal_of = nullptr;
  const __half* C1 = nullptr;  // with the pitch and stride of the outputs
  __half *high = nullptr, *low = nullptr;
  __half* bytes = nullptr;    // high/kLowInBytes in bytes
  bool low_in_bytes = false;  // low is kLowInBytes·(v − high) in bytes
  bool lower = false;         // blocks of 256×256 right of the diagonal may be left out, except in bytes
  int pitch = 0;              // a multiple of 8; what is between the columns and the pitch may be overwritten
  int64_t stride = 0;

  bool reads_C = false, writes_C = false;  // (n, n) float32 matrices in the launch's table
  float beta = 1;
  const float* beta_of = nullptr;

  Norms norms = {};

  bool weights = false;  // W, and float32 masters if there are any, in the launch's tables
  float scale = 1;
  Real weight = Real::Float32;
  bool has_master = false;

  int first = 0;  // index of this stack's first pointer in the tables
};

// P(i, j) = Σ over the terms of Σ_k A(i, k)·B(j, k), for `count` pairs of matrices.
struct Product {
  int count = 0;
  int rows = 0, columns = 0;
  Term terms[2] = {};
  int term_count = 1;
  bool A_down = false, B_down = false;  // k runs down the columns of the stored matrix instead of along its rows
  bool symmetric = false;               // only i ≥ j is computed; the rest is mirrored
  // Of symmetric operands in a sequence, but not in bytes: the blocks of 256×256 right of the diagonal may hold anything.
  bool A_lower = false, B_lower = false;
  Epilogue epilogue = {};
  int* progress = nullptr;  // of each matrix, in a sequence: 0 before its first phase
};

// The pointers that cannot be strided, for all products of a launch.
struct Pointers {
  void* W[kMaxMatrices];  // weights, or the float32 matrices C
  float* master[kMaxMatrices];
};

// The scalars of a step as a kernel reads them.
struct Rates {
  Number lr;
  const bool* apply = nullptr;
  float weight_decay = 0;
};

cudaError_t launch_products(const std::vector<Product>& products, const Pointers& pointers, const Rates& rates,
                            int device, cudaStream_t stream);

// Returns true if this device takes the kernel for compute capability 9.0, which also sums norms.
cudaError_t takes_hopper(int device, bool* answer);
int norm_places(int64_t n);  // for one n×n result

// Launches products that follow each other: in each phase, a matrix reads what the phases before it made of the same
// matrix, and its progress, in the place that its products name, tells when that is written. All products are fp16
// matrices without a float32 one, square, and those of a matrix have the same size. One kernel takes all phases if they
// fit its parameters: a matrix enters the next phase while others are still in this one. `tickets` are
// kMaxSequenceLaunches zeros. With `runs`, a number on the device, the kernels do nothing if it is 0.
constexpr int kMaxSequenceLaunches = 512;
cudaError_t launch_sequence(const std::vector<std::vector<Product>>& phases, int* tickets, int device,
                            cudaStream_t stream, const int* runs = nullptr);
cudaError_t launch_hopper_sequence(const std::vector<std::vector<Product>>& phases, int* tickets, int device,
                                   cudaStream_t stream, const int* runs);

// Launch products of the same kind: kind of result and type of weights.
cudaError_t launch_hopper(const Product* products, int count, const Pointers& pointers, const Rates& rates, int device,
                          cudaStream_t stream);
cudaError_t launch_portable(const Product* products, int count, const Pointers& pointers, const Rates& rates,
                            cudaStream_t stream, const int* runs = nullptr);

}  // namespace prism::cuda
