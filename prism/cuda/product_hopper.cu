// Products for compute capability 9.0. A block of three warpgroups stays on each multiprocessor and takes tiles of 128×256 in turn: one thread
// of the first warpgroup copies operands into a ring of shared-memory stages, also ahead into the next tile, and the other two multiply,
// 64 rows each, and write.

#include <algorithm>

#include "prism/cuda/epilogue.cuh"
#include "prism/cuda/hopper.cuh"

namespace prism::cuda {
namespace {

constexpr int kRows = 128, kColumns = 256, kDepth = 64;  // of a tile, and of the inner indices of one stage
constexpr int kStages = 4;
constexpr int kGroup = 128;       // threads of a warpgroup
constexpr int kStrip = 64;        // a warpgroup's rows, and the columns it writes at a time
constexpr int kChunk = 64 * 128;  // bytes of 64 rows of 128 bytes
constexpr int kStageBytes = (kRows + kColumns) * kDepth * static_cast<int>(sizeof(__half));

struct Shared {
  uint8_t A[kStages][kRows / 64][kChunk];
  uint8_t B[kStages][kColumns / 64][kChunk];
  uint8_t strips[2][2][kChunk];  // of each multiplying warpgroup: a strip of fp16 and its transpose, or a strip of float32
  uint64_t full[kStages], empty[kStages];
};

struct Stack {
  CUtensorMap A[2], B[2];
  int tiles, tiles_of_one, column_tiles;
  int rows, columns;
  int depths[2];  // stages of each term; 0 for none
  bool symmetric;
  Epilogue epilogue;
};

struct Launch {
  Stack stacks[kMaxProducts];
  int tiles;
  Pointers pointers;
  Rates rates;
};

struct Tile {
  int stack, matrix, row, column;
};

__device__ __forceinline__ Tile find_tile(const Launch& launch, int index) {
  int s = 0;
  while (index >= launch.stacks[s].tiles) index -= launch.stacks[s++].tiles;
  const Stack& stack = launch.stacks[s];
  const int matrix = index / stack.tiles_of_one;
  index -= matrix * stack.tiles_of_one;
  if (stack.symmetric) {
    const TriangleTile tile = triangle_tile(index);
    return {s, matrix, tile.row * kRows, tile.column * kColumns};
  }
  return {s, matrix, index / stack.column_tiles * kRows, index % stack.column_tiles * kColumns};
}

// Where the ring stands.
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

template <bool Down, int Chunks>
__device__ __forceinline__ void load_operand(const CUtensorMap* map, uint8_t (*destination)[kChunk], uint64_t* barrier, int outer, int inner,
                                             int matrix) {
  if constexpr (Down) {
    for (int i = 0; i < Chunks; ++i) hopper::load_box(map, destination[i], barrier, outer + 64 * i, inner, matrix);
  } else {
    hopper::load_box(map, destination, barrier, inner, outer, matrix);
  }
}

template <bool A_down, bool B_down>
__device__ __forceinline__ void load_tiles(const Launch& launch, Shared& shared) {
  Ring ring;
  for (int index = blockIdx.x; index < launch.tiles; index += gridDim.x) {
    const Tile tile = find_tile(launch, index);
    const Stack& stack = launch.stacks[tile.stack];
    for (int t = 0; t < 2; ++t) {
      for (int d = 0; d < stack.depths[t]; ++d, ring.advance()) {
        hopper::barrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
        uint64_t* full = &shared.full[ring.stage];
        hopper::barrier_expect(full, kStageBytes);
        load_operand<A_down, kRows / 64>(&stack.A[t], shared.A[ring.stage], full, tile.row, d * kDepth, tile.matrix);
        load_operand<B_down, kColumns / 64>(&stack.B[t], shared.B[ring.stage], full, tile.column, d * kDepth, tile.matrix);
      }
    }
  }
}

// sums ← the product of the next `depth` stages.
template <bool A_down, bool B_down>
__device__ __forceinline__ void multiply(float (&sums)[128], int depth, int group, Shared& shared, Ring& ring) {
  constexpr int kA16 = A_down ? 16 * 128 : 32, kB16 = B_down ? 16 * 128 : 32;  // bytes from 16 inner indices to the next
  const bool signals = threadIdx.x % kGroup == 0;
  int previous = 0;
  for (int d = 0; d < depth; ++d, ring.advance()) {
    hopper::barrier_wait(&shared.full[ring.stage], ring.parity);
    const uint64_t A = hopper::descriptor(hopper::shared_address(shared.A[ring.stage][group]), kChunk);
    const uint64_t B = hopper::descriptor(hopper::shared_address(shared.B[ring.stage]), kChunk);
    hopper::wgmma_begin();
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k) {
      hopper::wgmma<A_down, B_down>(sums, A + k * (kA16 >> 4), B + k * (kB16 >> 4), d > 0 || k > 0);
    }
    hopper::wgmma_commit();
    hopper::wgmma_wait<1>();  // the stage before this one has been read
    if (signals && d > 0) hopper::barrier_arrive(&shared.empty[previous]);
    previous = ring.stage;
  }
  hopper::wgmma_wait<0>();
  if (signals) hopper::barrier_arrive(&shared.empty[previous]);
}

// The place of a thread's sums in its warpgroup's 64×256: sums[4j + 2h + e] is row `row + 8h`, column `8j + column + e`.
struct Place {
  int row, column;
};
__device__ __forceinline__ Place place() {
  const int thread = threadIdx.x % kGroup;
  return {thread / 32 * 16 + thread % 32 / 4, thread % 4 * 2};
}

__device__ __forceinline__ uint32_t packed(float a, float b) {
  const __half2 pair = __floats2half2_rn(a, b);
  return reinterpret_cast<const uint32_t&>(pair);
}
__device__ __forceinline__ float2 unpacked(const __half* source, int64_t offset) { return __half22float2(*reinterpret_cast<const __half2*>(source + offset)); }

// A strip of 64×64 in shared memory, rows of 128 bytes with their 16-byte pieces exchanged so that no two rows of a warp's access meet in a bank.
__device__ __forceinline__ uint32_t piece(int row, int column_of_eight) { return row * 128 + ((column_of_eight ^ row % 8) << 4); }

// Writes a strip of fp16 values, and its mirror image where the result is symmetric.
__device__ __forceinline__ void write_strip(const uint32_t (&values)[16], __half* output, const Stack& stack, int row0, int column0, uint8_t (*strips)[kChunk],
                            int group) {
  const int pitch = stack.epilogue.pitch;
  const int lane = threadIdx.x % 32, warp = threadIdx.x % kGroup / 32;
  const uint32_t plain = hopper::shared_address(strips[0]), mirror = hopper::shared_address(strips[1]);
  const int block = lane / 8;  // rows 8·(block % 2), columns 8·(block / 2) of sixteen by sixteen
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    const uint32_t a = values[2 * j], b = values[2 * j + 1], c = values[2 * j + 2], d = values[2 * j + 3];
    hopper::store_blocks(plain + piece(warp * 16 + block % 2 * 8 + lane % 8, j + block / 2), a, b, c, d);
    if (stack.symmetric) {
      hopper::store_blocks_transposed(mirror + piece((j + block / 2) * 8 + lane % 8, warp * 2 + block % 2), a, b, c, d);
    }
  }
  hopper::named_barrier(1 + group, kGroup);
  const bool diagonal = stack.symmetric && row0 == column0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int index = i * kGroup + threadIdx.x % kGroup;
    const int row = index / 8, eight = index % 8;
    uint4 here = *reinterpret_cast<const uint4*>(strips[0] + piece(row, eight));
    const uint4 there = *reinterpret_cast<const uint4*>(strips[1] + piece(row, eight));
    if (diagonal) {  // right of the diagonal stands what lies left of it
      const auto* source = reinterpret_cast<const uint16_t*>(&there);
      auto* target = reinterpret_cast<uint16_t*>(&here);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        if (eight * 8 + e > row) target[e] = source[e];
      }
    }
    if (row0 + row < stack.rows && column0 + eight * 8 < stack.columns) {
      *reinterpret_cast<uint4*>(output + static_cast<int64_t>(row0 + row) * pitch + column0 + eight * 8) = here;
    }
    if (stack.symmetric && !diagonal && column0 + row < stack.rows && row0 + eight * 8 < stack.columns) {
      *reinterpret_cast<uint4*>(output + static_cast<int64_t>(column0 + row) * pitch + row0 + eight * 8) = there;
    }
  }
  hopper::named_barrier(1 + group, kGroup);  // before the strips are written again
}

// v = alpha·P + c1·C1 + c2·C2 + beta·C + diagonal·I of one strip, into its fp16 forms or into C.
__device__ __forceinline__ void finish_strip(const float* P, const Launch& launch, const Stack& stack, int matrix, int row0, int column0,
                                             uint8_t (*strips)[kChunk], int group) {
  const Epilogue& e = stack.epilogue;
  const int64_t base = matrix * e.stride;
  const float alpha = e.alpha * (e.alpha_of == nullptr ? 1.f : e.alpha_of[matrix]);
  const float beta = e.reads_C ? e.beta * e.beta_of[matrix] : 0.f;
  auto* C = e.reads_C || e.writes_C ? static_cast<float*>(launch.pointers.W[e.first + matrix]) : nullptr;
  const bool writes_C = e.writes_C && applies(launch.rates.apply);
  const Place mine = place();
  uint32_t high[16], low[16], second[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int row = row0 + mine.row + 8 * (i % 2), column = column0 + 8 * (i / 2) + mine.column;
    const bool inside = row < stack.rows && column < stack.columns;
    const int64_t offset = base + static_cast<int64_t>(row) * e.pitch + column;
    float2 v = {alpha * P[2 * i], alpha * P[2 * i + 1]};
    float2 c = {0, 0};
    if (e.C1 != nullptr && inside) {
      c = unpacked(e.C1, offset);
      if (e.C1_low != nullptr) {
        const float2 rest = unpacked(e.C1_low, offset);
        c = {c.x + rest.x, c.y + rest.y};
      }
      v = {fmaf(e.c1, c.x, v.x), fmaf(e.c1, c.y, v.y)};
    }
    if (e.C2 != nullptr && inside) {
      const float2 c2 = unpacked(e.C2, offset);
      v = {fmaf(e.c2, c2.x, v.x), fmaf(e.c2, c2.y, v.y)};
    }
    if (C != nullptr && inside) {
      float* here = C + static_cast<int64_t>(row) * stack.columns + column;
      float* mirrored = C + static_cast<int64_t>(column) * stack.columns + row;
      if (e.reads_C) v.x = fmaf(beta, here[0], v.x);
      if (e.reads_C && column + 1 < stack.columns) v.y = fmaf(beta, here[1], v.y);
      if (writes_C && column <= row) here[0] = mirrored[0] = v.x;
      if (writes_C && column + 1 <= row) here[1] = mirrored[stack.columns] = v.y;
    }
    if (row == column) v.x += e.diagonal;
    if (row == column + 1) v.y += e.diagonal;
    high[i] = packed(v.x, v.y);
    const float2 rounded = __half22float2(reinterpret_cast<const __half2&>(high[i]));
    low[i] = packed(v.x - rounded.x, v.y - rounded.y);
    second[i] = packed(fmaf(e.y2, v.x, e.y1 * c.x), fmaf(e.y2, v.y, e.y1 * c.y));
  }
  if (e.high != nullptr) write_strip(high, e.high + base, stack, row0, column0, strips, group);
  if (e.low != nullptr) write_strip(low, e.low + base, stack, row0, column0, strips, group);
  if (e.second != nullptr) write_strip(second, e.second + base, stack, row0, column0, strips, group);
}

// The place of four neighbours in a strip of float32; rows are exchanged so that a warp's accesses spread over the banks.
__device__ __forceinline__ int four(int row, int column) { return row * kStrip + (column ^ row % 4 * 8); }

template <class T>
struct alignas(4 * sizeof(T)) Four {
  T x[4];
};

// W ← (1 − lr·λ)W − lr·alpha·P of one strip that lies in shared memory.
template <class T>
__device__ __forceinline__ void update_weights(const float* P, const Launch& launch, const Stack& stack, int matrix, int row0, int column0) {
  const Epilogue& e = stack.epilogue;
  const float alpha = e.alpha * e.alpha_of[matrix];
  auto* W = static_cast<T*>(launch.pointers.W[e.first + matrix]);
  float* master = e.has_master ? launch.pointers.master[e.first + matrix] : nullptr;
  const Write write = read_write(launch.rates);
  const bool fours = stack.columns % 4 == 0 && reinterpret_cast<uintptr_t>(W) % sizeof(Four<T>) == 0;
#pragma unroll 4
  for (int i = 0; i < kStrip * kStrip / 4 / kGroup; ++i) {
    const int index = i * kGroup + threadIdx.x % kGroup;
    const int row = index / (kStrip / 4), column = index % (kStrip / 4) * 4;
    const float4 u = *reinterpret_cast<const float4*>(P + four(row, column));
    const float updates[4] = {alpha * u.x, alpha * u.y, alpha * u.z, alpha * u.w};
    if (row0 + row >= stack.rows) continue;
    const int left = stack.columns - column0 - column;
    const int64_t offset = static_cast<int64_t>(row0 + row) * stack.columns + column0 + column;
    if (fours && left > 0) {
      Four<float> w;
      if (master != nullptr) {
        w = *reinterpret_cast<const Four<float>*>(master + offset);
      } else {
        const auto old = *reinterpret_cast<const Four<T>*>(W + offset);
        for (int k = 0; k < 4; ++k) w.x[k] = to_float(old.x[k]);
      }
      Four<T> next;
      for (int k = 0; k < 4; ++k) {
        w.x[k] = updated(w.x[k], updates[k], write);
        next.x[k] = from_float<T>(w.x[k]);
      }
      if (master != nullptr) *reinterpret_cast<Four<float>*>(master + offset) = w;
      *reinterpret_cast<Four<T>*>(W + offset) = next;
    } else {
      for (int k = 0; k < min(left, 4); ++k) {
        const float w = updated(master != nullptr ? master[offset + k] : to_float(W[offset + k]), updates[k], write);
        if (master != nullptr) master[offset + k] = w;
        W[offset + k] = from_float<T>(w);
      }
    }
  }
}

__device__ __forceinline__ void write_weights(const float* P, const Launch& launch, const Stack& stack, int matrix, int row0, int column0,
                                              uint8_t (*strips)[kChunk], int group) {
  auto* staged = reinterpret_cast<float*>(strips);
  const Place mine = place();
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    *reinterpret_cast<float2*>(staged + four(mine.row + 8 * (i % 2), 8 * (i / 2) + mine.column)) = {P[2 * i], P[2 * i + 1]};
  }
  hopper::named_barrier(1 + group, kGroup);
  switch (stack.epilogue.weight) {
    case Real::Float32:
      update_weights<float>(staged, launch, stack, matrix, row0, column0);
      break;
    case Real::Float16:
      update_weights<__half>(staged, launch, stack, matrix, row0, column0);
      break;
    case Real::BFloat16:
      update_weights<__nv_bfloat16>(staged, launch, stack, matrix, row0, column0);
      break;
  }
  hopper::named_barrier(1 + group, kGroup);
}

template <bool A_down, bool B_down, bool Weights>
__device__ __forceinline__ void multiply_tiles(const Launch& launch, Shared& shared, int group) {
  Ring ring;
  for (int index = blockIdx.x; index < launch.tiles; index += gridDim.x) {
    const Tile tile = find_tile(launch, index);
    const Stack& stack = launch.stacks[tile.stack];
    float sums[128];
    multiply<A_down, B_down>(sums, stack.depths[0] + stack.depths[1], group, shared, ring);
    if (Weights && !applies(launch.rates.apply)) continue;
    const int row0 = tile.row + group * kStrip;
#pragma unroll
    for (int strip = 0; strip < kColumns / kStrip; ++strip) {
      const int column0 = tile.column + strip * kStrip;
      const bool upper = stack.symmetric && row0 < column0;
      if (upper || row0 >= stack.rows || column0 >= stack.columns) continue;
      if constexpr (Weights) {
        write_weights(sums + 32 * strip, launch, stack, tile.matrix, row0, column0, shared.strips[group], group);
      } else {
        finish_strip(sums + 32 * strip, launch, stack, tile.matrix, row0, column0, shared.strips[group], group);
      }
    }
  }
}

template <bool A_down, bool B_down, bool Weights>
__global__ void __launch_bounds__(3 * kGroup, 1) product_kernel(const __grid_constant__ Launch launch) {
  extern __shared__ __align__(1024) uint8_t memory[];  // the alignment of the swizzle's pattern
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      hopper::barrier_init(&shared.full[i], 1);
      hopper::barrier_init(&shared.empty[i], 2);
    }
    hopper::barrier_init_visible();
  }
  __syncthreads();
  const int group = static_cast<int>(threadIdx.x) / kGroup;
  if (group == 0) {
    hopper::fewer_registers<40>();
    if (threadIdx.x == 0) load_tiles<A_down, B_down>(launch, shared);
  } else {
    hopper::more_registers<232>();
    multiply_tiles<A_down, B_down, Weights>(launch, shared, group - 1);
  }
}

using EncodeTensorMap = decltype(&cuTensorMapEncodeTiled);

// The driver's function, found without linking to the driver.
cudaError_t find_encoder(EncodeTensorMap* encode) {
  static EncodeTensorMap found = nullptr;
  if (found == nullptr) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &result);
    if (error != cudaSuccess) return error;
    if (result != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
    found = reinterpret_cast<EncodeTensorMap>(entry);
  }
  *encode = found;
  return cudaSuccess;
}

// The map of an operand: boxes of 64 elements along a row, and `outer` rows, or 64 where k runs down.
cudaError_t make_map(EncodeTensorMap encode, CUtensorMap* map, const Operand& operand, int count, int outer, int k, bool down, int box) {
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(down ? outer : k), static_cast<cuuint64_t>(down ? k : outer),
                               static_cast<cuuint64_t>(count)};
  const cuuint64_t strides[2] = {operand.pitch * sizeof(__half), operand.stride * sizeof(__half)};
  const cuuint32_t boxes[3] = {64, static_cast<cuuint32_t>(down ? kDepth : box), 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  const CUresult result =
      encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, const_cast<__half*>(operand.data), sizes, strides, boxes, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

int pieces(int size, int piece) { return (size + piece - 1) / piece; }

cudaError_t make_stack(EncodeTensorMap encode, Stack& stack, const Product& product) {
  stack.rows = product.rows;
  stack.columns = product.columns;
  stack.column_tiles = pieces(product.columns, kColumns);
  const int row_tiles = pieces(product.rows, kRows);
  stack.tiles_of_one = product.symmetric ? triangle_tiles(row_tiles) : row_tiles * stack.column_tiles;
  stack.tiles = product.count * stack.tiles_of_one;
  stack.symmetric = product.symmetric;
  stack.epilogue = product.epilogue;
  for (int t = 0; t < 2; ++t) {
    stack.depths[t] = 0;
    if (t >= product.term_count) continue;
    const Term& term = product.terms[t];
    stack.depths[t] = pieces(term.k, kDepth);
    cudaError_t error = make_map(encode, &stack.A[t], term.A, product.count, product.rows, term.k, product.A_down, kRows);
    if (error != cudaSuccess) return error;
    error = make_map(encode, &stack.B[t], term.B, product.count, product.columns, term.k, product.B_down, kColumns);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

// Left Gram matrices and the iteration; right Gram matrices; updates from the right and from the left.
auto kernel_for(bool A_down, bool B_down, bool weights) -> void (*)(Launch) {
  if (!A_down && !B_down && !weights) return product_kernel<false, false, false>;
  if (A_down && B_down && !weights) return product_kernel<true, true, false>;
  if (!A_down && B_down && weights) return product_kernel<false, true, true>;
  if (A_down && B_down && weights) return product_kernel<true, true, true>;
  return nullptr;
}

}  // namespace

cudaError_t launch_hopper(const Product* products, int count, const Pointers& pointers, const Rates& rates, int device, cudaStream_t stream) {
  EncodeTensorMap encode = nullptr;
  cudaError_t error = find_encoder(&encode);
  if (error != cudaSuccess) return error;
  Launch launch;
  launch.tiles = 0;
  for (int p = 0; p < count; ++p) {
    error = make_stack(encode, launch.stacks[p], products[p]);
    if (error != cudaSuccess) return error;
    launch.tiles += launch.stacks[p].tiles;
  }
  launch.pointers = pointers;
  launch.rates = rates;
  int processors = 0;
  error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  const Product& first = products[0];
  const auto kernel = kernel_for(first.A_down, first.B_down, first.epilogue.weights);
  if (kernel == nullptr) return cudaErrorInvalidValue;
  constexpr int kBytes = sizeof(Shared);
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  kernel<<<std::min(launch.tiles, processors), 3 * kGroup, kBytes, stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace prism::cuda
