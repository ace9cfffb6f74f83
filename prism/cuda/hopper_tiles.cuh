#pragma once

// How the product kernel for compute capability 9.0 divides its work into tiles, loads their operands to shared memory
// and multiplies them. Part of product_hopper.cu.

#include "prism/cuda/hopper.cuh"
#include "prism/cuda/weight_update.cuh"

namespace prism::cuda {
namespace {

constexpr int kRows = 128, kColumns = 256, kDepth = 64;  // of a block's tile; inner indices of one stage
constexpr int kStages = 4;
constexpr int kGroup = 128;  // threads of a warpgroup
constexpr int kStrip = 64;   // a warpgroup's rows, and the columns it finishes at a time
constexpr int kStrips = kColumns / kStrip;
constexpr int kSlice = 32;        // columns of weights that are updated at a time
constexpr int kChunk = 64 * 128;  // bytes of 64×64 fp16, in rows of 128 bytes
constexpr int kChunks = (kRows + kColumns) / 64;

// A stage holds 2 chunks of A and 4 of B.
struct Shared {
  uint8_t stages[kStages][kChunks][kChunk];
  uint8_t strips[2][2][kChunk];  // of each warpgroup: a strip and its transpose, two strips of C1 or slices of weights
  uint64_t full[kStages], empty[kStages];
  uint64_t arrived[2][2];  // slices of weights
};

struct Stack {
  CUtensorMap A[2], B[2];
  CUtensorMap high, low;
  int tiles, tiles_of_one, column_tiles;
  int rows, columns;
  int depths[2];  // stages of each term; 0 for none
  bool symmetric;
  bool square;  // both operands are the same matrix
  Epilogue epilogue;
};

struct Launch {
  Stack stacks[kMaxProducts];
  int tiles;
  Pointers pointers;
  Rates rates;
};

// Returns true if the copy engine can access a matrix.
__host__ __device__ inline bool can_be_mapped(const void* data, int columns, int size) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && columns * size % 16 == 0;
}

// The kind of result: fp16 matrices; fp16 matrices with a float32 matrix added or written; weights.
enum class Result { Halves, Float32, Weights };

template <Result>
struct Parameters {
  Launch launch;
};
template <>
struct Parameters<Result::Weights> {
  Launch launch;
  CUtensorMap weights[kMaxMatrices];  // or their masters
};

// The tile of a block: the rows of its two warpgroups, 64 each, and the columns of both.
struct Tile {
  int stack, matrix;
  int row[2], column;
};

// The number of tiles on and below the diagonal, which cover a symmetric result.
__host__ __device__ int triangle(int rows) { return rows * (rows + 1) / 2; }

__device__ __forceinline__ Tile find_tile(const Launch& launch, int index, int rank) {
  int s = 0;
  while (index >= launch.stacks[s].tiles) index -= launch.stacks[s++].tiles;
  const Stack& stack = launch.stacks[s];
  const int matrix = index / stack.tiles_of_one;
  index -= matrix * stack.tiles_of_one;
  const auto tile = [&](int row, int column) -> Tile {
    const int first = (2 * row + rank) * kRows;
    return {s, matrix, {first, first + kStrip}, column * kColumns};
  };
  if (!stack.symmetric) return tile(index / stack.column_tiles, index % stack.column_tiles);
  // On the diagonal, upper rows need fewer columns. Each block gets upper and lower rows. These tiles take less time,
  // so they are spread among the others, and every cluster gets some.
  const int side = stack.column_tiles, before = (2 * index + side) / (side + 1);
  if (before < side && before * (side + 1) / 2 == index) {
    const int first = before * kColumns;
    return {s, matrix, {first + rank * kStrip, first + (3 - rank) * kStrip}, first};
  }
  index -= before;
  int row = 1;
  while (triangle(row) <= index) ++row;
  return tile(row, index - triangle(row - 1));
}

// The index of the tile that a cluster takes in a round. Every second round runs backward: tiles are ordered by length,
// so the cluster that had the longest takes the shortest next.
__device__ __forceinline__ int index_of(int round) {
  const int clusters = static_cast<int>(gridDim.x) / 2, mine = static_cast<int>(blockIdx.x) / 2;
  return round * clusters + (round % 2 == 0 ? mine : clusters - 1 - mine);
}

// Returns true if the rows' operand of a tile is part of the columns' operand, so that it need not be loaded.
__device__ __forceinline__ bool shares_operand(const Stack& stack, const Tile& tile) {
  return stack.square && stack.symmetric && tile.row[0] < tile.column + kColumns;
}

// Returns true if a strip of 64×64 must be written: it is not outside the result, nor above the diagonal of a symmetric
// one.
__device__ __forceinline__ bool is_needed(const Stack& stack, int row0, int column0) {
  return row0 < stack.rows && column0 < stack.columns && !(stack.symmetric && row0 < column0);
}

// The position in the ring of stages.
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// Signals that this warpgroup has finished with a stage. Neither block refills it until both have.
__device__ __forceinline__ void release(Shared& shared, int stage) {
  hopper::barrier_arrive_at(&shared.empty[stage], 0);
  hopper::barrier_arrive_at(&shared.empty[stage], 1);
}

template <bool Down>
__device__ __forceinline__ void load_rows(const CUtensorMap* map, uint8_t (*A)[kChunk], uint64_t* full,
                                          const Tile& tile, int k) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    Down ? hopper::load_box(map, A[i], full, tile.row[i], k, tile.matrix)
         : hopper::load_box(map, A[i], full, k, tile.row[i], tile.matrix);
  }
}

// Loads this block's half of the columns' operand into both blocks.
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

template <bool A_down, bool B_down>
__device__ __forceinline__ void load_tiles(const Launch& launch, Shared& shared, int rank) {
  Ring ring;
  for (int round = 0, index = index_of(0); index < launch.tiles; index = index_of(++round)) {
    const Tile tile = find_tile(launch, index, rank);
    const Stack& stack = launch.stacks[tile.stack];
    const bool shares = shares_operand(stack, tile);
    for (int t = 0; t < 2; ++t) {
      for (int d = 0; d < stack.depths[t]; ++d, ring.advance()) {
        hopper::barrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
        uint64_t* full = &shared.full[ring.stage];
        hopper::barrier_expect(full, (shares ? kChunks - kRows / 64 : kChunks) * kChunk);
        if (!shares) load_rows<A_down>(&stack.A[t], shared.stages[ring.stage], full, tile, d * kDepth);
        load_columns<B_down>(&stack.B[t], shared.stages[ring.stage] + kRows / 64, full, tile, d * kDepth, rank);
      }
    }
  }
}

// The number of strips of a tile that a warpgroup's rows need: in a symmetric result, rows need no columns beyond the
// diagonal.
__device__ __forceinline__ int needed_strips(const Stack& stack, const Tile& tile, int row0) {
  int strips = (stack.columns - tile.column + kStrip - 1) / kStrip;
  if (stack.symmetric) strips = min(strips, (row0 - tile.column) / kStrip + 1);
  return min(strips, kStrips);
}

// Adds the products of one stage to the sums; the first stage overwrites them.
template <int Columns, bool A_down, bool B_down>
__device__ __forceinline__ void multiply_stage(float (&sums)[128], uint64_t A, uint64_t B, bool first) {
  constexpr int kA16 = A_down ? 16 * 128 : 32,
                kB16 = B_down ? 16 * 128 : 32;  // bytes from 16 inner indices to the next
  hopper::wgmma_begin();
#pragma unroll
  for (int k = 0; k < kDepth / 16; ++k) {
    hopper::wgmma<Columns, A_down, B_down>(sums, A + k * (kA16 >> 4), B + k * (kB16 >> 4), !first || k > 0);
  }
  hopper::wgmma_commit();
}

// The chunk of a stage that holds a warpgroup's rows.
__device__ __forceinline__ int chunk_of_rows(const Stack& stack, const Tile& tile, int row0, int group) {
  return shares_operand(stack, tile) ? kRows / 64 + (row0 - tile.column) / 64 : group;
}

// Computes the product of the next `depth` stages for the first `strips` strips and the rows in `chunk`. While the
// tensor cores work on a stage, it calls `meanwhile` for the parts of some other work, spread evenly over the stages.
template <bool A_down, bool B_down, class Meanwhile>
__device__ __forceinline__ void multiply(float (&sums)[128], int strips, int depth, int chunk, Shared& shared,
                                         Ring& ring, int parts, Meanwhile&& meanwhile) {
  const bool signals = threadIdx.x % kGroup == 0;
  int previous = 0, part = 0;
  for (int d = 0; d < depth || part < parts; ++d) {
    if (d < depth) {
      hopper::barrier_wait(&shared.full[ring.stage], ring.parity);
      const uint64_t A = hopper::descriptor(hopper::shared_address(shared.stages[ring.stage][chunk]), kChunk);
      const uint64_t B = hopper::descriptor(hopper::shared_address(shared.stages[ring.stage][kRows / 64]), kChunk);
      switch (strips) {
        case 1:
          multiply_stage<64, A_down, B_down>(sums, A, B, d == 0);
          break;
        case 2:
          multiply_stage<128, A_down, B_down>(sums, A, B, d == 0);
          break;
        case 3:
          multiply_stage<192, A_down, B_down>(sums, A, B, d == 0);
          break;
        default:
          multiply_stage<256, A_down, B_down>(sums, A, B, d == 0);
      }
    }
#pragma unroll 1
    for (; part < parts && part * depth < (d + 1) * parts; ++part) meanwhile(part);
    if (d < depth) {
      hopper::wgmma_wait<1>();  // the stage before this one has been read
      if (signals && d > 0) release(shared, previous);
      previous = ring.stage;
      ring.advance();
    }
  }
  hopper::wgmma_wait<0>();
  if (signals && depth > 0) release(shared, previous);
}

}  // namespace
}  // namespace prism::cuda
