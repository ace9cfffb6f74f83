#pragma once

// How the product kernel for compute capability 9.0 cuts its work into tiles, brings their operands to shared memory
// and multiplies them. Part of product_hopper.cu.

#include "prism/cuda/epilogue.cuh"
#include "prism/cuda/hopper.cuh"

namespace prism::cuda {
namespace {

constexpr int kRows = 128, kColumns = 256, kDepth = 64;  // of a block's tile, and of the inner indices of one stage
constexpr int kStages = 4;
constexpr int kGroup = 128;  // threads of a warpgroup
constexpr int kStrip = 64;   // a warpgroup's rows, and the columns it finishes at a time
constexpr int kStrips = kColumns / kStrip;
constexpr int kChunk = 64 * 128;  // bytes of 64×64 fp16, in rows of 128 bytes
constexpr int kChunks = (kRows + kColumns) / 64;

constexpr int kAddedStages =
    (kStrips + kChunks / 2 - 1) / (kChunks / 2);  // to hold C1's strips, half of a stage for each warpgroup

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

// The number of the tile that a cluster takes in a round. Every second round runs backwards: tiles are ordered by their
// length, so whoever had the longest takes the shortest next.
__device__ __forceinline__ int index_of(int round) {
  const int clusters = static_cast<int>(gridDim.x) / 2, mine = static_cast<int>(blockIdx.x) / 2;
  return round * clusters + (round % 2 == 0 ? mine : clusters - 1 - mine);
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
__device__ __forceinline__ void load_rows(const CUtensorMap* map, uint8_t (*A)[kChunk], uint64_t* full,
                                          const Tile& tile, int k) {
  if constexpr (Down) {
    for (int i = 0; i < kRows / 64; ++i) hopper::load_box(map, A[i], full, tile.row + 64 * i, k, tile.matrix);
  } else {
    hopper::load_box(map, A, full, k, tile.row, tile.matrix);
  }
}

// This block's half of the columns' operand, for both.
template <bool Down>
__device__ __forceinline__ void load_columns(const CUtensorMap* map, uint8_t (*B)[kChunk], uint64_t* full,
                                             const Tile& tile, int k, int rank) {
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
__device__ __forceinline__ void load_C1(const Stack& stack, uint8_t (*chunks)[kChunk], uint64_t* full, const Tile& tile,
                                        int part) {
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
  for_needed(
      [&](int i, int row0, int column0) { hopper::load_box(&stack.C1, chunks[i], full, column0, row0, tile.matrix); });
}

template <bool A_down, bool B_down>
__device__ __forceinline__ void load_tiles(const Launch& launch, Shared& shared, int rank) {
  Ring ring;
  for (int round = 0, index = index_of(0); index < launch.tiles; index = index_of(++round)) {
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
  constexpr int kA16 = A_down ? 16 * 128 : 32,
                kB16 = B_down ? 16 * 128 : 32;  // bytes from 16 inner indices to the next
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

}  // namespace
}  // namespace prism::cuda
