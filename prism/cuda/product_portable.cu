// Products with the warp-wide matrix instructions of every device since compute capability 8.0. A block of four warps
// computes a tile of 128×128, each warp 64×64 of it, while asynchronous copies fetch the operands of the next steps.

#include <algorithm>

#include "prism/cuda/blocks.cuh"
#include "prism/cuda/weight_update.cuh"

namespace prism::cuda {
namespace {

constexpr int kTile = 128, kDepth = 32, kStages = 4, kThreads = 128, kWarpTile = 64;
constexpr int kHalves = 8;  // of one copy, 16 bytes

// The rows of operands and sums in shared memory. Eight rows of an operand begin in different banks.
constexpr int kAlongPitch = kDepth + kHalves, kDownPitch = kTile + kHalves, kSumPitch = kTile + 4;
constexpr int kOperandHalves = std::max(kTile * kAlongPitch, kDepth* kDownPitch);
constexpr int kSharedBytes = std::max(static_cast<int>(kStages * 2 * kOperandHalves * sizeof(__half)),
                                      static_cast<int>(kTile* kSumPitch * sizeof(float)));

struct Launch {
  Product product;
  int column_tiles;
  Pointers pointers;
  Rates rates;
  const int* runs;  // on the device: 0 for no work; null: 1
};

__device__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Starts a copy of the first `bytes` of 16 to shared memory; the others become 0.
__device__ void copy_or_zero(__half* target, const __half* source, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(target)), "l"(source), "r"(bytes)
               : "memory");
}
__device__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `Pending` of this thread's groups of copies are under way.
template <int Pending>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// Starts to load a tile of an operand as it is stored, [outer][inner] or, if k runs down its columns, [inner][outer]. It
// is zero outside the matrix.
template <bool Down>
__device__ void load(__half* tile, const Operand& operand, int matrix, int outer0, int outer, int k0, int k) {
  constexpr int kCopies = (Down ? kTile : kDepth) / kHalves;  // of a stored row
  const __half* data = operand.data + matrix * operand.stride;
  for (int i = threadIdx.x; i < kTile * kDepth / kHalves; i += kThreads) {
    const int line = i / kCopies, part = i % kCopies * kHalves;
    const int row = (Down ? k0 : outer0) + line, column = (Down ? outer0 : k0) + part;
    const int left = (Down ? outer : k) - column;
    const int halves = row < (Down ? k : outer) ? min(max(left, 0), kHalves) : 0;
    const __half* source = halves > 0 ? data + static_cast<int64_t>(row) * operand.pitch + column : data;
    copy_or_zero(tile + line * (Down ? kDownPitch : kAlongPitch) + part, source,
                 halves * static_cast<int>(sizeof(__half)));
  }
}

// Loads four blocks of 8×8 of a tile as the matrix instructions want them. Each lane gives the start of a row: lanes 8q to
// 8q + 7 those of the block at (outer, k).
template <bool Down>
__device__ void load_blocks(uint32_t (&blocks)[4], const __half* tile, int outer, int k) {
  const int row = static_cast<int>(threadIdx.x) % 8;
  if constexpr (Down) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(blocks[0]), "=r"(blocks[1]), "=r"(blocks[2]), "=r"(blocks[3])
                 : "r"(shared_address(tile + (k + row) * kDownPitch + outer)));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(blocks[0]), "=r"(blocks[1]), "=r"(blocks[2]), "=r"(blocks[3])
                 : "r"(shared_address(tile + (outer + row) * kAlongPitch + k)));
  }
}

// sums += A·Bᵀ for A of 16×16 and B of 8×16.
__device__ void multiply_add(float (&sums)[4], const uint32_t (&A)[4], uint32_t B0, uint32_t B1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B0), "r"(B1));
}

using WarpSums = float[kWarpTile / 16][kWarpTile / 8][4];

// Adds the products of one stage's tiles to the sums of a warp, whose part begins at (row, column) of the tile.
template <bool ADown, bool BDown>
__device__ void multiply_tiles(WarpSums& sums, const __half* A, const __half* B, int row, int column) {
  const int quarter = static_cast<int>(threadIdx.x) % kWarp / 8, low = quarter % 2 * 8, high = quarter / 2 * 8;
#pragma unroll
  for (int k = 0; k < kDepth; k += 16) {
    uint32_t a[kWarpTile / 16][4], b[kWarpTile / 16][4];
#pragma unroll
    for (int i = 0; i < kWarpTile / 16; ++i) load_blocks<ADown>(a[i], A, row + 16 * i + low, k + high);
#pragma unroll
    for (int j = 0; j < kWarpTile / 16; ++j) load_blocks<BDown>(b[j], B, column + 16 * j + high, k + low);
#pragma unroll
    for (int i = 0; i < kWarpTile / 16; ++i) {
#pragma unroll
      for (int j = 0; j < kWarpTile / 8; ++j)
        multiply_add(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
  }
}

// Stores v in the outputs of a product that has them.
__device__ void store(float v, const Epilogue& e, int64_t offset) {
  const __half high = __float2half_rn(v);
  if (e.high != nullptr) e.high[offset] = high;
  if (e.low != nullptr) e.low[offset] = __float2half_rn(v - __half2float(high));
}

// Computes v from a sum, stores it, and returns it. `mirror` stores the upper half of symmetric results.
__device__ float finish(float sum, const Launch& launch, int matrix, int row, int column) {
  const Epilogue& e = launch.product.epilogue;
  const int64_t offset = matrix * e.stride + static_cast<int64_t>(row) * e.pitch + column;
  float v = factor(e.alpha, e.alpha_of, matrix) * sum;
  if (e.C1 != nullptr) v = fmaf(factor(e.c1, e.c1_of, matrix), to_float(e.C1[offset]), v);
  if (e.reads_C || e.writes_C) {
    auto* C = static_cast<float*>(launch.pointers.W[e.first + matrix]);
    float& here = C[static_cast<int64_t>(row) * launch.product.columns + column];
    if (e.reads_C) v = fmaf(factor(e.beta, e.beta_of, matrix), here, v);
    if (e.writes_C && applies(launch.rates.apply)) here = v;
  }
  if (row == column) v += factor(e.diagonal, e.diagonal_of, matrix);
  store(v, e, offset);
  return v;
}

__device__ void mirror(float v, const Launch& launch, int matrix, int row, int column) {
  const Epilogue& e = launch.product.epilogue;
  const int64_t offset = matrix * e.stride + static_cast<int64_t>(column) * e.pitch + row;
  if (e.writes_C && applies(launch.rates.apply)) {
    auto* C = static_cast<float*>(launch.pointers.W[e.first + matrix]);
    C[static_cast<int64_t>(column) * launch.product.columns + row] = v;
  }
  store(v, e, offset);
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

// The first sum of a lane in a result of 16×8; the others are one column, eight rows, and both further on.
__device__ float* lane_sums(float* sums, int row, int column) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  return sums + (row + lane / 4) * kSumPitch + column + lane % 4 * 2;
}

template <bool ADown, bool BDown>
__global__ void __launch_bounds__(kThreads) portable_kernel(const __grid_constant__ Launch launch) {
  extern __shared__ __align__(16) unsigned char shared[];
  const Product& product = launch.product;
  const int matrix = blockIdx.y;
  const int row0 = blockIdx.x / launch.column_tiles * kTile, column0 = blockIdx.x % launch.column_tiles * kTile;
  if ((product.symmetric && row0 < column0) || leaves_C(product.epilogue, matrix)) return;
  if (launch.runs != nullptr && *launch.runs == 0) return;

  const int first_steps = (product.terms[0].k + kDepth - 1) / kDepth;
  const int steps = first_steps + (product.term_count > 1 ? (product.terms[1].k + kDepth - 1) / kDepth : 0);
  const auto tiles_of = [&](int step) {  // those of A; those of B follow
    return reinterpret_cast<__half*>(shared) + step % kStages * 2 * kOperandHalves;
  };
  const auto start = [&](int step) {
    if (step < steps) {
      const bool second = step >= first_steps;
      const Term& term = product.terms[second ? 1 : 0];
      const int k = (step - (second ? first_steps : 0)) * kDepth;
      load<ADown>(tiles_of(step), term.A, matrix, row0, product.rows, k, term.k);
      load<BDown>(tiles_of(step) + kOperandHalves, term.B, matrix, column0, product.columns, k, term.k);
    }
    commit_copies();  // an empty group, too, so that their number is known
  };

  WarpSums sums = {};
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warp_row = warp / 2 * kWarpTile, warp_column = warp % 2 * kWarpTile;
  for (int step = 0; step < kStages - 1; ++step) start(step);
  for (int step = 0; step < steps; ++step) {
    wait_for_copies<kStages - 2>();
    __syncthreads();  // the tiles have arrived, and everyone is done with those of the step before
    start(step + kStages - 1);
    multiply_tiles<ADown, BDown>(sums, tiles_of(step), tiles_of(step) + kOperandHalves, warp_row, warp_column);
  }
  wait_for_copies<0>();
  __syncthreads();

  auto* results = reinterpret_cast<float*>(shared);
  for (int i = 0; i < kWarpTile / 16; ++i) {
    for (int j = 0; j < kWarpTile / 8; ++j) {
      float* mine = lane_sums(results, warp_row + 16 * i, warp_column + 8 * j);
      mine[0] = sums[i][j][0];
      mine[1] = sums[i][j][1];
      mine[8 * kSumPitch] = sums[i][j][2];
      mine[8 * kSumPitch + 1] = sums[i][j][3];
    }
  }
  __syncthreads();
  if (product.epilogue.weights && !applies(launch.rates.apply)) return;
  for (int i = threadIdx.x; i < kTile * kTile; i += kThreads) {
    const int row = row0 + i / kTile, column = column0 + i % kTile;
    if (row >= product.rows || column >= product.columns || (product.symmetric && row < column)) continue;
    float& sum = results[i / kTile * kSumPitch + i % kTile];
    if (product.epilogue.weights) {
      finish_weight(sum, launch, matrix, row, column);
    } else {
      sum = finish(sum, launch, matrix, row, column);
    }
  }
  if (!product.symmetric) return;
  __syncthreads();
  for (int i = threadIdx.x; i < kTile * kTile; i += kThreads) {  // down the columns, whose mirror images are rows
    const int row = row0 + i % kTile, column = column0 + i / kTile;
    if (row < product.rows && row > column)
      mirror(results[i % kTile * kSumPitch + i / kTile], launch, matrix, row, column);
  }
}

}  // namespace

cudaError_t launch_portable(const Product* products, int count, const Pointers& pointers, const Rates& rates,
                            cudaStream_t stream, const int* runs) {
  for (int p = 0; p < count; ++p) {
    const Product& product = products[p];
    const auto kernel = product.A_down
                            ? (product.B_down ? portable_kernel<true, true> : portable_kernel<true, false>)
                            : (product.B_down ? portable_kernel<false, true> : portable_kernel<false, false>);
    cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
    if (error != cudaSuccess) return error;
    Launch launch{product, (product.columns + kTile - 1) / kTile, pointers, rates, runs};
    const unsigned tiles = static_cast<unsigned>(launch.column_tiles) * ((product.rows + kTile - 1) / kTile);
    kernel<<<dim3(tiles, product.count), kThreads, kSharedBytes, stream>>>(launch);
    error = cudaGetLastError();
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace prism::cuda
