// Products with the warp-wide matrix instructions of every device since compute capability 8.0: tiles of 64×64, four
// warps of 32×32. Correct on all of them, tuned for none.

#include <mma.h>

#include "prism/cuda/weight_update.cuh"

namespace prism::cuda {
namespace {

constexpr int kTile = 64, kDepth = 32, kThreads = 128;
constexpr int kPitch = kDepth + 8;  // of operands in shared memory; avoids bank conflicts
constexpr int kSumPitch = kTile + 4;

struct Launch {
  Product product;
  int column_tiles;
  Pointers pointers;
  Rates rates;
  const int* runs;  // on the device: 0 for no work; null: 1
};

union Shared {
  struct {
    __half A[kTile][kPitch], B[kTile][kPitch];
  } operands;
  float sums[kTile][kSumPitch];
};

// Loads a tile of an operand, [outer][inner], zero outside the matrix.
__device__ void load(__half (&tile)[kTile][kPitch], const Operand& operand, int matrix, bool down, int outer0,
                     int outer, int k0, int k) {
  const __half* data = operand.data + matrix * operand.stride;
  for (int i = threadIdx.x; i < kTile * kDepth; i += kThreads) {
    const int x = down ? i % kTile : i / kDepth, y = down ? i / kTile : i % kDepth;
    const int row = outer0 + x, inner = k0 + y;
    const int64_t offset =
        down ? static_cast<int64_t>(inner) * operand.pitch + row : static_cast<int64_t>(row) * operand.pitch + inner;
    tile[x][y] = row < outer && inner < k ? data[offset] : __half(0);
  }
}

__device__ void finish(float sum, const Launch& launch, int matrix, int row, int column) {
  const Product& product = launch.product;
  const Epilogue& e = product.epilogue;
  const int64_t offset = matrix * e.stride + static_cast<int64_t>(row) * e.pitch + column;
  const int64_t mirrored = matrix * e.stride + static_cast<int64_t>(column) * e.pitch + row;
  float v = factor(e.alpha, e.alpha_of, matrix) * sum;
  if (e.C1 != nullptr) v = fmaf(factor(e.c1, e.c1_of, matrix), to_float(e.C1[offset]), v);
  if (e.reads_C || e.writes_C) {
    auto* C = static_cast<float*>(launch.pointers.W[e.first + matrix]);
    float& here = C[static_cast<int64_t>(row) * product.columns + column];
    if (e.reads_C) v = fmaf(factor(e.beta, e.beta_of, matrix), here, v);
    if (e.writes_C && applies(launch.rates.apply)) here = C[static_cast<int64_t>(column) * product.columns + row] = v;
  }
  if (row == column) v += factor(e.diagonal, e.diagonal_of, matrix);
  const auto store = [&](__half* output, __half value) {
    if (output == nullptr) return;
    output[offset] = value;
    if (product.symmetric) output[mirrored] = value;
  };
  const __half high = __float2half_rn(v);
  store(e.high, high);
  store(e.low, __float2half_rn(v - __half2float(high)));
}

template <class T>
__device__ void update(float sum, const Launch& launch, int matrix, int row, int column) {
  const Epilogue& e = launch.product.epilogue;
  const int64_t offset = static_cast<int64_t>(row) * launch.product.columns + column;
  T& W = static_cast<T*>(launch.pointers.W[e.first + matrix])[offset];
  float* master = e.has_master ? launch.pointers.master[e.first + matrix] + offset : nullptr;
  const float u = e.scale * factor(e.alpha, e.alpha_of, matrix) * sum;
  const float w =
      updated(master != nullptr ? current_master(*master, W) : to_float(W), u, decay_and_rate(launch.rates));
  if (master != nullptr) *master = w;
  W = from_float<T>(w);
}

__device__ void finish_weight(float sum, const Launch& launch, int matrix, int row, int column) {
  switch (launch.product.epilogue.weight) {
    case Real::Float32:
      return update<float>(sum, launch, matrix, row, column);
    case Real::Float16:
      return update<__half>(sum, launch, matrix, row, column);
    case Real::BFloat16:
      return update<__nv_bfloat16>(sum, launch, matrix, row, column);
  }
}

__global__ void __launch_bounds__(kThreads) portable_kernel(const __grid_constant__ Launch launch) {
  using namespace nvcuda::wmma;
  __shared__ Shared shared;
  const Product& product = launch.product;
  const int matrix = blockIdx.y;
  const int row0 = blockIdx.x / launch.column_tiles * kTile, column0 = blockIdx.x % launch.column_tiles * kTile;
  if ((product.symmetric && row0 < column0) || leaves_C(product.epilogue, matrix)) return;
  if (launch.runs != nullptr && *launch.runs == 0) return;

  fragment<accumulator, 16, 16, 16, float> sums[2][2];
  for (auto& line : sums) {
    for (auto& sum : line) fill_fragment(sum, 0.f);
  }
  const int warp = threadIdx.x / 32, warp_row = warp / 2 * 32, warp_column = warp % 2 * 32;
  for (int t = 0; t < product.term_count; ++t) {
    const Term& term = product.terms[t];
    for (int k = 0; k < term.k; k += kDepth) {
      load(shared.operands.A, term.A, matrix, product.A_down, row0, product.rows, k, term.k);
      load(shared.operands.B, term.B, matrix, product.B_down, column0, product.columns, k, term.k);
      __syncthreads();
      for (int step = 0; step < kDepth; step += 16) {
        fragment<matrix_a, 16, 16, 16, __half, row_major> a[2];
        fragment<matrix_b, 16, 16, 16, __half, col_major> b[2];
        for (int i = 0; i < 2; ++i) {
          load_matrix_sync(a[i], &shared.operands.A[warp_row + 16 * i][step], kPitch);
          load_matrix_sync(b[i], &shared.operands.B[warp_column + 16 * i][step], kPitch);
        }
        for (int i = 0; i < 2; ++i) {
          for (int j = 0; j < 2; ++j) mma_sync(sums[i][j], a[i], b[j], sums[i][j]);
        }
      }
      __syncthreads();
    }
  }
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      store_matrix_sync(&shared.sums[warp_row + 16 * i][warp_column + 16 * j], sums[i][j], kSumPitch, mem_row_major);
    }
  }
  __syncthreads();
  if (product.epilogue.weights && !applies(launch.rates.apply)) return;
  for (int i = threadIdx.x; i < kTile * kTile; i += kThreads) {
    const int row = row0 + i / kTile, column = column0 + i % kTile;
    if (row >= product.rows || column >= product.columns || (product.symmetric && row < column)) continue;
    const float sum = shared.sums[i / kTile][i % kTile];
    if (product.epilogue.weights) {
      finish_weight(sum, launch, matrix, row, column);
    } else {
      finish(sum, launch, matrix, row, column);
    }
  }
}

}  // namespace

cudaError_t launch_portable(const Product* products, int count, const Pointers& pointers, const Rates& rates,
                            cudaStream_t stream, const int* runs) {
  for (int p = 0; p < count; ++p) {
    Launch launch{products[p], (products[p].columns + kTile - 1) / kTile, pointers, rates, runs};
    const unsigned tiles = static_cast<unsigned>(launch.column_tiles) * ((products[p].rows + kTile - 1) / kTile);
    portable_kernel<<<dim3(tiles, products[p].count), kThreads, 0, stream>>>(launch);
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace prism::cuda
