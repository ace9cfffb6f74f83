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
  bool square;  // the columns' operand is the rows'
  Epilogue epilogue;
};

struct Launch {
  Stack stacks[kMaxProducts];
  int tiles;
  Pointers pointers;
  Rates rates;
};

// Whether the copy engine can take a matrix.
__host__ __device__ inline bool can_be_mapped(const void* data, int columns, int size) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && columns * size % 16 == 0;
}

// What becomes of the sums: fp16 matrices; the same with a float32 matrix added or written; weights.
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

// Of a block: the rows of its two warpgroups, 64 each, and the columns of both.
struct Tile {
  int stack, matrix;
  int row[2], column;
};

// A symmetric result is covered by the tiles on and below the diagonal.
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
  // On the diagonal the upper rows need fewer columns. Each block gets upper and lower ones, and these tiles, which
  // take less time, are spread among the others so that every cluster gets some.
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

// The number of the tile that a cluster takes in a round. Every second round runs backwards: tiles are ordered by their
// length, so whoever had the longest takes the shortest next.
__device__ __forceinline__ int index_of(int round) {
  const int clusters = static_cast<int>(gridDim.x) / 2, mine = static_cast<int>(blockIdx.x) / 2;
  return round * clusters + (round % 2 == 0 ? mine : clusters - 1 - mine);
}

// Whether the rows' operand of a tile is part of the columns' and need not come itself.
__device__ __forceinline__ bool shares_operand(const Stack& stack, const Tile& tile) {
  return stack.square && stack.symmetric && tile.row[0] < tile.column + kColumns;
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
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    Down ? hopper::load_box(map, A[i], full, tile.row[i], k, tile.matrix)
         : hopper::load_box(map, A[i], full, k, tile.row[i], tile.matrix);
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

// The columns of a tile up to the last that a warpgroup's rows need, in strips: rows at the diagonal of a symmetric
// result need none beyond it.
__device__ __forceinline__ int needed_strips(const Stack& stack, const Tile& tile, int row0) {
  int strips = (stack.columns - tile.column + kStrip - 1) / kStrip;
  if (stack.symmetric) strips = min(strips, (row0 - tile.column) / kStrip + 1);
  return min(strips, kStrips);
}

// sums ← the products of one stage, added to what is there but for the first.
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

// sums ← the product of the next `depth` stages, its first `strips` strips, of the rows in `chunk`. While the tensor
// cores work on a stage, does some other work: `meanwhile` is called for each of its parts in turn, evenly over the
// stages.
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
