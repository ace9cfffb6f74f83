// Products for compute capability 9.0. Clusters of two blocks stay on the multiprocessors and take tiles of 256×256 in turn, 128 rows for each
// block. In a block one thread copies operands into a ring of shared-memory stages, ahead into the next tile too; the columns' operand
// comes once for both blocks. Two warpgroups multiply, 64 rows each, and finish what they multiplied.

#include <algorithm>
#include <array>
#include <tuple>

#include "prism/cuda/epilogue.cuh"
#include "prism/cuda/hopper.cuh"

namespace prism::cuda {
namespace {

constexpr int kRows = 128, kColumns = 256, kDepth = 64;  // of a block's tile, and of the inner indices of one stage
constexpr int kStages = 4;
constexpr int kGroup = 128;       // threads of a warpgroup
constexpr int kStrip = 64;        // a warpgroup's rows, and the columns it finishes at a time
constexpr int kStrips = kColumns / kStrip;
constexpr int kChunk = 64 * 128;  // bytes of 64×64 fp16, in rows of 128 bytes
constexpr int kChunks = (kRows + kColumns) / 64;

constexpr int kAddedStages = (kStrips + kChunks / 2 - 1) / (kChunks / 2);  // to hold C1's strips, half of a stage for each warpgroup

// A stage holds 2 chunks of A and 4 of B, or strips of C1: up to 3 for each warpgroup.
struct Shared {
  uint8_t stages[kStages][kChunks][kChunk];
  uint8_t strips[2][2][kChunk];  // of each warpgroup: a strip of fp16 and its transpose, or a strip of float32
  uint64_t full[kStages], empty[kStages];
};

struct Stack {
  CUtensorMap A[2], B[2];
  CUtensorMap C1, high, low;
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

// What becomes of the sums: fp16 matrices; the same with a float32 matrix added or written; weights.
enum class Result { Halves, Float32, Weights };

struct Tile {
  int stack, matrix, row, column;  // of this block's part
};

// A symmetric result is covered by the tiles on and below the diagonal, row after row.
__host__ __device__ int triangle(int rows) { return rows * (rows + 1) / 2; }

__device__ __forceinline__ Tile find_tile(const Launch& launch, int index, int rank) {
  int s = 0;
  while (index >= launch.stacks[s].tiles) index -= launch.stacks[s++].tiles;
  const Stack& stack = launch.stacks[s];
  const int matrix = index / stack.tiles_of_one;
  index -= matrix * stack.tiles_of_one;
  int row = 0, column = 0;
  if (stack.symmetric) {
    while (triangle(row + 1) <= index) ++row;
    column = index - triangle(row);
  } else {
    row = index / stack.column_tiles;
    column = index % stack.column_tiles;
  }
  return {s, matrix, (2 * row + rank) * kRows, column * kColumns};
}

// Whether a strip of 64×64 has something to be written: not outside, and not above the diagonal of a symmetric result.
__device__ __forceinline__ bool is_needed(const Stack& stack, int row0, int column0) {
  return row0 < stack.rows && column0 < stack.columns && !(stack.symmetric && row0 < column0);
}

// Where the ring stands.
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// Both blocks have left the stage before either fills it again.
__device__ __forceinline__ void release(Shared& shared, int stage) {
  hopper::barrier_arrive_at(&shared.empty[stage], 0);
  hopper::barrier_arrive_at(&shared.empty[stage], 1);
}

template <bool Down>
__device__ __forceinline__ void load_rows(const CUtensorMap* map, uint8_t (*A)[kChunk], uint64_t* full, const Tile& tile, int k) {
  if constexpr (Down) {
    for (int i = 0; i < kRows / 64; ++i) hopper::load_box(map, A[i], full, tile.row + 64 * i, k, tile.matrix);
  } else {
    hopper::load_box(map, A, full, k, tile.row, tile.matrix);
  }
}

// This block's half of the columns' operand, for both.
template <bool Down>
__device__ __forceinline__ void load_columns(const CUtensorMap* map, uint8_t (*B)[kChunk], uint64_t* full, const Tile& tile, int k, int rank) {
  constexpr int kHalf = kColumns / 64 / 2;
  const int column = tile.column + rank * kColumns / 2;
  B += rank * kHalf;
  if constexpr (Down) {
    for (int i = 0; i < kHalf; ++i) hopper::load_box_for_both(map, B[i], full, column + 64 * i, k, tile.matrix);
  } else {
    hopper::load_box_for_both(map, B, full, k, column, tile.matrix);
  }
}

// The strips of C1 that follow in stage `part` of them.
__device__ __forceinline__ void load_C1(const Stack& stack, uint8_t (*chunks)[kChunk], uint64_t* full, const Tile& tile, int part) {
  constexpr int kHere = kChunks / 2;
  const auto for_needed = [&](auto&& function) {
    for (int i = 0; i < kChunks; ++i) {
      const int strip = part * kHere + i % kHere;
      const int row0 = tile.row + i / kHere * kStrip, column0 = tile.column + strip * kStrip;
      if (strip < kStrips && is_needed(stack, row0, column0)) function(i, row0, column0);
    }
  };
  int bytes = 0;
  for_needed([&](int, int, int) { bytes += kChunk; });
  hopper::barrier_expect(full, bytes);
  for_needed([&](int i, int row0, int column0) { hopper::load_box(&stack.C1, chunks[i], full, column0, row0, tile.matrix); });
}

template <bool A_down, bool B_down>
__device__ __forceinline__ void load_tiles(const Launch& launch, Shared& shared, int rank) {
  Ring ring;
  for (int index = blockIdx.x / 2; index < launch.tiles; index += gridDim.x / 2) {
    const Tile tile = find_tile(launch, index, rank);
    const Stack& stack = launch.stacks[tile.stack];
    for (int t = 0; t < 2; ++t) {
      for (int d = 0; d < stack.depths[t]; ++d, ring.advance()) {
        hopper::barrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
        uint64_t* full = &shared.full[ring.stage];
        hopper::barrier_expect(full, kChunks * kChunk);
        load_rows<A_down>(&stack.A[t], shared.stages[ring.stage], full, tile, d * kDepth);
        load_columns<B_down>(&stack.B[t], shared.stages[ring.stage] + kRows / 64, full, tile, d * kDepth, rank);
      }
    }
    for (int part = 0; stack.epilogue.C1 != nullptr && part < kAddedStages; ++part, ring.advance()) {
      hopper::barrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
      load_C1(stack, shared.stages[ring.stage], &shared.full[ring.stage], tile, part);
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
    const uint64_t A = hopper::descriptor(hopper::shared_address(shared.stages[ring.stage][group]), kChunk);
    const uint64_t B = hopper::descriptor(hopper::shared_address(shared.stages[ring.stage][kRows / 64]), kChunk);
    hopper::wgmma_begin();
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k) {
      hopper::wgmma<A_down, B_down>(sums, A + k * (kA16 >> 4), B + k * (kB16 >> 4), d > 0 || k > 0);
    }
    hopper::wgmma_commit();
    hopper::wgmma_wait<1>();  // the stage before this one has been read
    if (signals && d > 0) release(shared, previous);
    previous = ring.stage;
  }
  hopper::wgmma_wait<0>();
  if (signals) release(shared, previous);
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
__device__ __forceinline__ float2 unpacked(uint32_t pair) { return __half22float2(reinterpret_cast<const __half2&>(pair)); }

// A strip of 64×64 in shared memory: rows of 128 bytes with their 16-byte pieces exchanged as the copy engine's swizzle does it.
__device__ __forceinline__ uint32_t piece(int row, int eight) { return row * 128 + ((eight ^ row % 8) << 4); }

// The address of this lane's row of the four 8×8 blocks at columns 8j and 8(j + 1) of the warp's sixteen rows.
__device__ __forceinline__ uint32_t block_address(const void* strip, int j) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % kGroup / 32, block = lane / 8;
  return hopper::shared_address(strip) + piece(warp * 16 + block % 2 * 8 + lane % 8, j + block / 2);
}
__device__ __forceinline__ uint32_t transposed_address(const void* strip, int j) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % kGroup / 32, block = lane / 8;
  return hopper::shared_address(strip) + piece((j + block / 2) * 8 + lane % 8, warp * 2 + block % 2);
}

// Right of the diagonal stands what lies left of it.
__device__ void mirror_within(uint8_t* strip) {
  const int row = static_cast<int>(threadIdx.x) % kGroup / 2;
  const auto at = [&](int i, int j) { return reinterpret_cast<uint16_t*>(strip + piece(i, j / 8)) + j % 8; };
  for (int column = row + 1 + threadIdx.x % 2; column < kStrip; column += 2) *at(row, column) = *at(column, row);
}

// Writes a strip of fp16 values, and its mirror image where the result is symmetric.
__device__ __forceinline__ void write_strip(const uint32_t (&values)[16], const CUtensorMap* map, const Stack& stack, int matrix, int row0,
                                            int column0, uint8_t (*strips)[kChunk], int group) {
  const bool leads = threadIdx.x % kGroup == 0;
  const bool diagonal = stack.symmetric && row0 == column0;
  const bool mirrors = stack.symmetric && !diagonal;
  if (leads) hopper::store_wait_read();
  hopper::named_barrier(1 + group, kGroup);
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    const uint32_t a = values[2 * j], b = values[2 * j + 1], c = values[2 * j + 2], d = values[2 * j + 3];
    hopper::store_blocks(block_address(strips[0], j), a, b, c, d);
    if (mirrors) hopper::store_blocks_transposed(transposed_address(strips[1], j), a, b, c, d);
  }
  if (diagonal) {
    hopper::named_barrier(1 + group, kGroup);
    mirror_within(strips[0]);
  }
  hopper::store_fence();
  hopper::named_barrier(1 + group, kGroup);
  if (leads) {
    hopper::store_box(map, strips[0], column0, row0, matrix);
    if (mirrors) hopper::store_box(map, strips[1], row0, column0, matrix);
    hopper::store_commit();
  }
}

// v ← v + beta·C, C ← v where it is written. These matrices are averaged covariances: rare, so plainly.
__device__ __forceinline__ void add_float32(float2& v, const Launch& launch, const Epilogue& e, int matrix, int n, int row, int column) {
  if (row >= n || column >= n) return;
  auto* C = static_cast<float*>(launch.pointers.W[e.first + matrix]);
  float* here = C + static_cast<int64_t>(row) * n + column;
  float* mirrored = C + static_cast<int64_t>(column) * n + row;
  if (e.reads_C) {
    const float beta = e.beta * e.beta_of[matrix];
    v.x = fmaf(beta, here[0], v.x);
    if (column + 1 < n) v.y = fmaf(beta, here[1], v.y);
  }
  if (e.writes_C && applies(launch.rates.apply)) {
    if (column <= row) here[0] = mirrored[0] = v.x;
    if (column + 1 <= row) here[1] = mirrored[n] = v.y;
  }
}

// What a tile needs of its stack's epilogue, read once.
struct Factors {
  float alpha, c1, diagonal;
  bool adds, has_high, has_low;
};
__device__ __forceinline__ Factors read_factors(const Stack& stack, int matrix) {
  const Epilogue& e = stack.epilogue;
  const float alpha = e.alpha * (e.alpha_of == nullptr ? 1.f : e.alpha_of[matrix]);
  return {alpha, e.c1, e.diagonal, e.C1 != nullptr, e.high != nullptr, e.low != nullptr};
}

// v = alpha·P + c1·C1 + beta·C + diagonal·I of one strip, into its fp16 halves or into C.
template <Result Kind>
__device__ __forceinline__ void finish_strip(const float (&P)[32], const Factors& f, const Launch& launch, const Stack& stack, int matrix, int row0,
                                             int column0, const uint8_t* C1, uint8_t (*strips)[kChunk], int group) {
  const Place mine = place();
  const float on_diagonal = row0 == column0 ? f.diagonal : 0.f;
  uint32_t high[16], low[16];
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    uint32_t added[4] = {};
    if (f.adds) hopper::load_blocks(block_address(C1, j), added);
#pragma unroll
    for (int i = 2 * j; i < 2 * j + 4; ++i) {
      const float2 c = unpacked(added[i - 2 * j]);
      float2 v = {fmaf(f.c1, c.x, f.alpha * P[2 * i]), fmaf(f.c1, c.y, f.alpha * P[2 * i + 1])};
      const int right = 8 * (i / 2) + mine.column - mine.row - 8 * (i % 2);
      if (right == 0) v.x += on_diagonal;
      if (right == -1) v.y += on_diagonal;
      if constexpr (Kind == Result::Float32) {
        add_float32(v, launch, stack.epilogue, matrix, stack.columns, row0 + mine.row + 8 * (i % 2), column0 + 8 * (i / 2) + mine.column);
      }
      high[i] = packed(v.x, v.y);
      const float2 rounded = unpacked(high[i]);
      low[i] = packed(v.x - rounded.x, v.y - rounded.y);
    }
  }
  if (f.has_high) write_strip(high, &stack.high, stack, matrix, row0, column0, strips, group);
  if (f.has_low) write_strip(low, &stack.low, stack, matrix, row0, column0, strips, group);
}

// The place of four neighbours in a strip of float32; rows are exchanged so that a warp's accesses spread over the banks.
__device__ __forceinline__ int four(int row, int column) { return row * kStrip + (column ^ row % 4 * 8); }

template <class T>
struct alignas(4 * sizeof(T)) Four {
  T x[4];
};

// A thread's share of a strip of weights: four neighbours in each of eight rows.
constexpr int kShare = kStrip * kStrip / 4 / kGroup;
__device__ __forceinline__ Place share(int i) {
  const int index = i * kGroup + threadIdx.x % kGroup;
  return {index / (kStrip / 4), index % (kStrip / 4) * 4};
}

// Where the weights of a matrix lie.
template <class T>
struct Weights {
  T* W;
  float* master;
  int rows, columns;
  bool fours;  // four neighbours can be taken together

  __device__ __forceinline__ Weights(const Launch& launch, const Stack& stack, int matrix) : rows(stack.rows), columns(stack.columns) {
    const Epilogue& e = stack.epilogue;
    W = static_cast<T*>(launch.pointers.W[e.first + matrix]);
    master = e.has_master ? launch.pointers.master[e.first + matrix] : nullptr;
    fours = columns % 4 == 0 && reinterpret_cast<uintptr_t>(W) % sizeof(Four<T>) == 0;
  }

  // A strip that lies inside, in fours: nothing is asked element by element, and all reads are under way before the first is used.
  __device__ __forceinline__ bool is_plain(int row0, int column0) const {
    return fours && row0 + kStrip <= rows && column0 + kStrip <= columns;
  }
  __device__ __forceinline__ int64_t offset(int row0, int column0, Place at) const {
    return static_cast<int64_t>(row0 + at.row) * columns + column0 + at.column;
  }

  template <class S>
  __device__ __forceinline__ void load_plain(Four<float> (&w)[kShare], const S* source, int row0, int column0) const {
    Four<S> values[kShare];
#pragma unroll
    for (int i = 0; i < kShare; ++i) values[i] = *reinterpret_cast<const Four<S>*>(source + offset(row0, column0, share(i)));
#pragma unroll
    for (int i = 0; i < kShare * 4; ++i) w[i / 4].x[i % 4] = to_float(values[i / 4].x[i % 4]);
  }
  template <class S>
  __device__ __forceinline__ void store_plain(S* target, const Four<float> (&w)[kShare], int row0, int column0) const {
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
      Four<S> values;
      for (int k = 0; k < 4; ++k) values.x[k] = from_float<S>(w[i].x[k]);
      *reinterpret_cast<Four<S>*>(target + offset(row0, column0, share(i))) = values;
    }
  }

  __device__ __forceinline__ void load_strip(Four<float> (&w)[kShare], int row0, int column0) const {
    if (!is_plain(row0, column0)) return;
    master != nullptr ? load_plain(w, master, row0, column0) : load_plain(w, W, row0, column0);
  }

  // W ← (1 − lr·λ)W − lr·alpha·P of one strip, P in shared memory, a plain strip's weights in w.
  __device__ __forceinline__ void update_strip(Four<float> (&w)[kShare], const float* P, float alpha, const Write& write, int row0,
                                               int column0) const {
    if (!is_plain(row0, column0)) return update_edge(P, alpha, write, row0, column0);
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
      const auto u = *reinterpret_cast<const Four<float>*>(P + four(share(i).row, share(i).column));
      for (int k = 0; k < 4; ++k) w[i].x[k] = updated(w[i].x[k], alpha * u.x[k], write);
    }
    if (master != nullptr) store_plain(master, w, row0, column0);
    store_plain(W, w, row0, column0);
  }

  __device__ __forceinline__ void update_edge(const float* P, float alpha, const Write& write, int row0, int column0) const {
#pragma unroll 1
    for (int i = threadIdx.x % kGroup; i < kStrip * kStrip; i += kGroup) {
      const Place at = {i / kStrip, i % kStrip};
      if (row0 + at.row >= rows || column0 + at.column >= columns) continue;
      const int64_t here = offset(row0, column0, at);
      const float x = updated(master != nullptr ? master[here] : to_float(W[here]), alpha * P[four(at.row, at.column)], write);
      if (master != nullptr) master[here] = x;
      W[here] = from_float<T>(x);
    }
  }
};

// The sums of one strip. The strips are finished in a loop, not unrolled, since all of them would not fit the instruction cache.
__device__ __forceinline__ void select_strip(float (&P)[32], const float (&sums)[128], int strip) {
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const float left = strip == 0 ? sums[i] : sums[32 + i], right = strip == 2 ? sums[64 + i] : sums[96 + i];
    P[i] = strip < 2 ? left : right;
  }
}

__device__ __forceinline__ void stage_strip(float* staged, const float (&P)[32]) {
  const Place mine = place();
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    *reinterpret_cast<float2*>(staged + four(mine.row + 8 * (i % 2), 8 * (i / 2) + mine.column)) = {P[2 * i], P[2 * i + 1]};
  }
}

// Brings the weights of a tile into the cache while its product is formed.
__device__ __forceinline__ void prefetch_weights(const Launch& launch, const Stack& stack, const Tile& tile, int group) {
  const Epilogue& e = stack.epilogue;
  const int size = e.has_master || e.weight == Real::Float32 ? 4 : 2;
  const auto* W = static_cast<const char*>(e.has_master ? launch.pointers.master[e.first + tile.matrix] : launch.pointers.W[e.first + tile.matrix]);
  constexpr int kLine = 128;
  const int lines = kColumns * size / kLine;
  for (int i = threadIdx.x % kGroup; i < kStrip * lines; i += kGroup) {
    const int row = tile.row + group * kStrip + i / lines, column = tile.column + i % lines * kLine / size;
    if (row < stack.rows && column < stack.columns) hopper::prefetch_L2(W + (static_cast<int64_t>(row) * stack.columns + column) * size);
  }
}

// Forms and finishes the tiles of fp16 results.
template <bool A_down, bool B_down, Result Kind>
__device__ __forceinline__ void multiply_tiles(const Launch& launch, Shared& shared, int group, int rank) {
  const bool leads = threadIdx.x % kGroup == 0;
  Ring ring;
  for (int index = blockIdx.x / 2; index < launch.tiles; index += gridDim.x / 2) {
    const Tile tile = find_tile(launch, index, rank);
    const Stack& stack = launch.stacks[tile.stack];
    const Factors factors = read_factors(stack, tile.matrix);
    float sums[128];
    multiply<A_down, B_down>(sums, stack.depths[0] + stack.depths[1], group, shared, ring);
    const int row0 = tile.row + group * kStrip;
#pragma unroll 1
    for (int strip = 0; strip < kStrips; ++strip) {
      constexpr int kHere = kChunks / 2;
      const int column0 = tile.column + strip * kStrip;
      if (factors.adds && strip % kHere == 0) hopper::barrier_wait(&shared.full[ring.stage], ring.parity);
      if (is_needed(stack, row0, column0)) {
        float P[32];
        select_strip(P, sums, strip);
        finish_strip<Kind>(P, factors, launch, stack, tile.matrix, row0, column0,
                           shared.stages[ring.stage][group * kHere + strip % kHere], shared.strips[group], group);
      }
      if (factors.adds && (strip % kHere == kHere - 1 || strip == kStrips - 1)) {
        hopper::named_barrier(1 + group, kGroup);  // all have read their part
        if (leads) release(shared, ring.stage);
        ring.advance();
      }
    }
  }
  if (leads) hopper::store_wait();
}

// Forms the tiles of an update and writes the weights. A strip's weights are read while the one before it is written, the first strip's while
// the product is formed.
template <bool A_down, bool B_down, class T>
__device__ __forceinline__ void update_tiles(const Launch& launch, Shared& shared, int group, int rank) {
  const bool applied = applies(launch.rates.apply);
  const Write write = read_write(launch.rates);
  auto* staged = reinterpret_cast<float*>(shared.strips[group]);
  Ring ring;
  for (int index = blockIdx.x / 2; index < launch.tiles; index += gridDim.x / 2) {
    const Tile tile = find_tile(launch, index, rank);
    const Stack& stack = launch.stacks[tile.stack];
    const float alpha = read_factors(stack, tile.matrix).alpha;
    const Weights<T> weights(launch, stack, tile.matrix);
    const int row0 = tile.row + group * kStrip;
    Four<float> w[kShare];
    if (applied) {
      prefetch_weights(launch, stack, tile, group);
      weights.load_strip(w, row0, tile.column);
    }
    float sums[128];
    multiply<A_down, B_down>(sums, stack.depths[0] + stack.depths[1], group, shared, ring);
    if (!applied) continue;
#pragma unroll 1
    for (int strip = 0; strip < kStrips; ++strip) {
      const int column0 = tile.column + strip * kStrip;
      float P[32];
      select_strip(P, sums, strip);
      hopper::named_barrier(1 + group, kGroup);  // the strip before this one has been read
      stage_strip(staged, P);
      Four<float> next[kShare];
      if (strip + 1 < kStrips) weights.load_strip(next, row0, column0 + kStrip);
      hopper::named_barrier(1 + group, kGroup);
      weights.update_strip(w, staged, alpha, write, row0, column0);
#pragma unroll
      for (int i = 0; i < kShare; ++i) w[i] = next[i];
    }
  }
}

template <bool A_down, bool B_down, Result Kind, class T>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(3 * kGroup, 1) product_kernel(const __grid_constant__ Launch launch) {
  extern __shared__ __align__(1024) uint8_t memory[];  // the alignment of the swizzle's pattern
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      hopper::barrier_init(&shared.full[i], 1);
      hopper::barrier_init(&shared.empty[i], 4);  // the multiplying warpgroups of both blocks
    }
    hopper::barrier_init_visible();
  }
  hopper::cluster_sync();
  hopper::let_next_begin();
  hopper::wait_for_previous();
  const int rank = static_cast<int>(hopper::cluster_rank());
  const int group = static_cast<int>(threadIdx.x) / kGroup;
  if (group == 0) {
    hopper::fewer_registers<40>();
    if (threadIdx.x == 0) load_tiles<A_down, B_down>(launch, shared, rank);
  } else {
    hopper::more_registers<232>();
    if constexpr (Kind == Result::Weights) {
      update_tiles<A_down, B_down, T>(launch, shared, group - 1, rank);
    } else {
      multiply_tiles<A_down, B_down, Kind>(launch, shared, group - 1, rank);
    }
  }
  __syncwarp();
  hopper::cluster_sync();  // the other block may still write here
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

// The map of a stack of rows×columns matrices, in boxes of 64 elements of `box_rows` rows.
cudaError_t make_map(EncodeTensorMap encode, CUtensorMap* map, const Operand& operand, int count, int rows, int columns, int box_rows) {
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows), static_cast<cuuint64_t>(count)};
  const cuuint64_t strides[2] = {operand.pitch * sizeof(__half), operand.stride * sizeof(__half)};
  const cuuint32_t boxes[3] = {64, static_cast<cuuint32_t>(box_rows), 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  const CUresult result =
      encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, const_cast<__half*>(operand.data), sizes, strides, boxes, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

int pieces(int size, int piece) { return (size + piece - 1) / piece; }

// All the maps of a product, in boxes as the kernel takes them: 128 rows, or 64 indices of k down the columns; strips of 64.
cudaError_t make_maps(EncodeTensorMap encode, Stack& stack, const Product& product) {
  cudaError_t error = cudaSuccess;
  const auto map = [&](CUtensorMap* target, const Operand& operand, int outer, int k, bool down, int box) {
    if (error == cudaSuccess) error = make_map(encode, target, operand, product.count, down ? k : outer, down ? outer : k, down ? kDepth : box);
  };
  for (int t = 0; t < product.term_count; ++t) {
    const Term& term = product.terms[t];
    stack.depths[t] = pieces(term.k, kDepth);
    map(&stack.A[t], term.A, product.rows, term.k, product.A_down, kRows);
    map(&stack.B[t], term.B, product.columns, term.k, product.B_down, kColumns / 2);
  }
  const Epilogue& e = product.epilogue;
  const auto strips = [&](CUtensorMap* target, const __half* data) {
    if (data != nullptr) map(target, {data, e.pitch, e.stride}, product.rows, product.columns, false, kStrip);
  };
  strips(&stack.C1, e.C1);
  strips(&stack.high, e.high);
  strips(&stack.low, e.low);
  return error;
}

cudaError_t make_stack(EncodeTensorMap encode, Stack& stack, const Product& product) {
  stack.rows = product.rows;
  stack.columns = product.columns;
  stack.column_tiles = pieces(product.columns, kColumns);
  const int row_tiles = pieces(product.rows, 2 * kRows);
  stack.tiles_of_one = product.symmetric ? triangle(row_tiles) : row_tiles * stack.column_tiles;
  stack.tiles = product.count * stack.tiles_of_one;
  stack.symmetric = product.symmetric;
  stack.epilogue = product.epilogue;
  return make_maps(encode, stack, product);
}

using Kernel = void (*)(Launch);

template <bool A_down, bool B_down>
Kernel matrix_kernel(bool float32) {
  return float32 ? product_kernel<A_down, B_down, Result::Float32, void> : product_kernel<A_down, B_down, Result::Halves, void>;
}

template <bool A_down>
Kernel weight_kernel(Real type) {
  switch (type) {
    case Real::Float16:
      return product_kernel<A_down, true, Result::Weights, __half>;
    case Real::BFloat16:
      return product_kernel<A_down, true, Result::Weights, __nv_bfloat16>;
    case Real::Float32:
      break;
  }
  return product_kernel<A_down, true, Result::Weights, float>;
}

// Left Gram matrices and the iteration; right Gram matrices; updates from the right and from the left. Null for what nobody needs.
Kernel kernel_for(const Product& product) {
  const auto& [A_down, B_down, e] = std::tie(product.A_down, product.B_down, product.epilogue);
  if (e.weights) {
    if (!B_down) return nullptr;
    return A_down ? weight_kernel<true>(e.weight) : weight_kernel<false>(e.weight);
  }
  if (A_down != B_down) return nullptr;
  const bool float32 = e.reads_C || e.writes_C;
  return A_down ? matrix_kernel<true, true>(float32) : matrix_kernel<false, false>(float32);
}

}  // namespace

cudaError_t launch_hopper(const Product* products, int count, const Pointers& pointers, const Rates& rates, int device, cudaStream_t stream) {
  EncodeTensorMap encode = nullptr;
  cudaError_t error = find_encoder(&encode);
  if (error != cudaSuccess) return error;
  // The deepest tiles first: those that are over soon fill the gaps at the end.
  std::array<const Product*, kMaxProducts> order{};
  for (int p = 0; p < count; ++p) order[p] = &products[p];
  const auto depth = [](const Product* product) { return product->terms[0].k * product->term_count; };
  std::stable_sort(order.begin(), order.begin() + count, [&](const Product* a, const Product* b) { return depth(a) > depth(b); });
  Launch launch{};
  for (int p = 0; p < count; ++p) {
    error = make_stack(encode, launch.stacks[p], *order[p]);
    if (error != cudaSuccess) return error;
    launch.tiles += launch.stacks[p].tiles;
  }
  launch.pointers = pointers;
  launch.rates = rates;
  int processors = 0;
  error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  const Kernel kernel = kernel_for(products[0]);
  if (kernel == nullptr) return cudaErrorInvalidValue;
  constexpr int kBytes = sizeof(Shared);
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute closely{};
  closely.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  closely.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(2 * std::min(launch.tiles, processors / 2));
  config.blockDim = dim3(3 * kGroup);
  config.dynamicSmemBytes = kBytes;
  config.stream = stream;
  config.attrs = &closely;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, launch);
}

}  // namespace prism::cuda
