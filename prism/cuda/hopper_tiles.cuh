#pragma once

// The tiles of the product kernel for compute capability 9.0: divides the work into them, loads their operands to shared
// memory and multiplies them. Part of product_hopper.cu.

#include <type_traits>

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
constexpr int kTickets = 2;  // tiles of a sequence that a cluster knows, with the one it works on
constexpr int kSignals = 4;  // warpgroups that compute a tile, each of which signals when it is written

// The factors of the epilogue of a matrix.
struct Factors {
  float alpha, c1, diagonal;
};

// What a cluster knows of a tile of a sequence.
struct alignas(sizeof(int4)) Ticket {
  int4 tile;  // of find_tile; -1 after the last
  Factors factors;
};

// A stage holds 2 chunks of A and 4 of B.
struct Shared {
  uint8_t stages[kStages][kChunks][kChunk];
  uint8_t strips[2][2][kChunk];  // of each warpgroup: a strip and its transpose, two strips of C1 or slices of weights
  uint64_t full[kStages], empty[kStages];
  uint64_t lent[2], returned[2];  // strips
  uint64_t arrived[2][2];         // slices of weights
  uint64_t told[kTickets], heard[kTickets];
  Ticket tickets[kTickets];
  float squares[2][kGroup / 32];
};

// The layouts of operands that a kernel knows.
//   Along   k runs along the rows of both; of lower triangles, blocks right of the diagonal are read from below it
//   Same    along both or down both
//   Update  down B, and along or down A
enum class Layouts { Along, Same, Update };

struct Stack {
  uint8_t A[2], B[2], B_down[2];  // maps
  uint8_t high, low, bytes, C1;
  bool first_in_bytes;  // the first term
  bool A_down;
  bool A_lower, B_lower;  // but not the first term in bytes
  bool symmetric;
  bool square;  // both operands are the same matrix
  int count, tiles_of_one, column_tiles;
  int rows, columns;
  int depths[2];  // stages of each term; 0 for none
  int* progress;  // of each matrix, in a sequence
  int needed;     // the progress that this product waits for
  Epilogue epilogue;
};

// Tiles of a stack, matrix by matrix: all of them, or those of a symmetric result below or on the diagonal. Where there
// are few, the longer ones come first.
enum class Cover : int { All, Below, Diagonal };
struct Range {
  int stack, tiles, tiles_of_one;
  Cover cover;
};

template <int Stacks, int Maps>
struct LaunchOf {
  static constexpr int kStacks = Stacks, kMaps = Maps;
  CUtensorMap maps[Maps];
  Stack stacks[Stacks];
  Range ranges[2 * Stacks];
  int tiles, stack_count;
  int* ticket;      // of a sequence: the next tile that a cluster takes
  const int* runs;  // of a sequence: on the device, 0 for no work; null: 1
  Pointers pointers;
  Rates rates;
};

// Returns true if the copy engine can access a matrix.
__host__ __device__ inline bool can_be_mapped(const void* data, int columns, int size) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && columns * size % 16 == 0;
}

// The kind of result: fp16 matrices; fp16 matrices with a float32 matrix added or written; weights.
enum class Result { Halves, Float32, Weights };

constexpr int kMostMaps = 10;  // of one product: three for each of two terms, and those of the epilogue

template <Result, bool Ordered>
struct Parameters {
  using Launch = LaunchOf<kMaxProducts, (kMostMaps - 2) * kMaxProducts>;  // without B_down
  Launch launch;
};
template <>
struct Parameters<Result::Halves, true> {
  using Launch = LaunchOf<32, 64>;
  Launch launch;
};
template <>
struct Parameters<Result::Weights, false> {
  using Launch = LaunchOf<kMaxProducts, 2 * kMaxProducts>;
  Launch launch;
  CUtensorMap weights[kMaxMatrices];  // or their masters
};

// The tile of a block: the rows of its two warpgroups, 64 each, and the columns of both.
struct Tile {
  int stack = -1;  // none
  int matrix = 0;
  int row[2] = {0, 0}, column = 0;
};
// The tile of a cluster, 256×256, as one of its blocks takes it. On the diagonal, upper rows need fewer columns; each
// block gets upper and lower rows.
__device__ __forceinline__ Tile tile_of(int stack, int matrix, int row, int column, bool symmetric, int rank) {
  if (symmetric && row == column) return {stack, matrix, {row + rank * kStrip, row + (3 - rank) * kStrip}, column};
  return {stack, matrix, {row + rank * kRows, row + rank * kRows + kStrip}, column};
}

// The number of tiles on and below the diagonal, which cover a symmetric result.
__host__ __device__ int triangle(int rows) { return rows * (rows + 1) / 2; }

// A range of tiles, and the index of its first. A cluster's tiles have increasing indices.
struct Cursor {
  int range = 0, first = 0;
};

// Finds a tile of a cluster: the stack, the matrix, and the first row and column.
template <class Launch>
__device__ __forceinline__ int4 find_tile(const Launch& launch, Cursor& cursor, int index) {
  while (index - cursor.first >= launch.ranges[cursor.range].tiles) cursor.first += launch.ranges[cursor.range++].tiles;
  const Range& range = launch.ranges[cursor.range];
  const Stack& stack = launch.stacks[range.stack];
  index -= cursor.first;
  const int matrix = index / range.tiles_of_one;
  index -= matrix * range.tiles_of_one;
  const auto tile = [&](int row, int column) -> int4 {
    return {range.stack, matrix, row * 2 * kRows, column * kColumns};
  };
  const int side = stack.column_tiles;
  if (!stack.symmetric) return tile(index / side, index % side);
  if (range.cover == Cover::Diagonal) return tile(index, index);
  if (range.cover == Cover::All) {
    // Tiles on the diagonal take less time, so they are spread among the others, and every cluster gets some.
    const int before = (2 * index + side) / (side + 1);
    if (before < side && before * (side + 1) / 2 == index) return tile(before, before);
    index -= before;
  }
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

// Reads the factors of a tile's epilogue.
__device__ __forceinline__ Factors read_factors(const Stack& stack, int matrix) {
  const Epilogue& e = stack.epilogue;
  return {factor(e.alpha, e.alpha_of, matrix), factor(e.c1, e.c1_of, matrix),
          factor(e.diagonal, e.diagonal_of, matrix)};
}

// The tiles of a block, one after the other: round after round. For each tile, the threads that finish it call `next`,
// then `factors`. The thread that loads it calls next_alone(true), and those that store it call next_alone(false).
template <class Launch>
struct Rounds {
  const Launch& launch;
  Shared& shared;
  int rank;
  Cursor cursor = {};
  int round = 0;

  __device__ __forceinline__ Tile next() {
    const int index = index_of(round++);
    if (index >= launch.tiles) return {};
    const int4 tile = find_tile(launch, cursor, index);
    return tile_of(tile.x, tile.y, tile.z, tile.w, launch.stacks[tile.x].symmetric, rank);
  }
  __device__ __forceinline__ Tile next_alone(bool /*loads*/) { return next(); }
  __device__ __forceinline__ Factors factors(const Tile& tile) const {
    return read_factors(launch.stacks[tile.stack], tile.matrix);
  }
};

// Returns x, the same number in all threads of the warp. The reduction tells the compiler so, and keeps it in a register
// of the warp; without it many more spill.
__device__ __forceinline__ int same(int x) {
  return static_cast<int>(__reduce_or_sync(0xffffffff, static_cast<unsigned>(x)));
}
__device__ __forceinline__ float same(float x) { return __int_as_float(same(__float_as_int(x))); }

// In a sequence, clusters draw tickets, whose numbers are tile indices: a tile waits only for tiles with smaller numbers,
// which clusters that are already running hold, so that some tile can always proceed. A thread of the first block
// draws, and sends the ticket to both blocks. None of this takes a fence, which would wait for all writes to device memory.
template <class Launch>
struct Tickets {
  const Launch& launch;
  Shared& shared;
  int rank;
  int turn = 0;

  __device__ __forceinline__ int slot() const { return turn % kTickets; }
  __device__ __forceinline__ uint32_t parity() const { return turn / kTickets % 2; }

  // Makes a slot ready for the next ticket. For one thread of each block.
  __device__ __forceinline__ static void expect(Shared& shared, int slot) {
    hopper::barrier_expect(&shared.told[slot], sizeof(Ticket));
  }
  __device__ __forceinline__ void send(const Ticket& ticket) const {
    constexpr int kWords = sizeof(Ticket) / sizeof(int4);
    int4 words[kWords];
    memcpy(words, &ticket, sizeof(Ticket));
#pragma unroll
    for (uint32_t to = 0; to < 2; ++to) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        int4* place = reinterpret_cast<int4*>(&shared.tickets[slot()]) + i;
        hopper::send_at(place, &shared.told[slot()], to, words[i]);
      }
    }
  }
  __device__ __forceinline__ void tell_all() {
    Cursor cursor;
    for (bool more = true; more; ++turn) {
      hopper::barrier_wait(&shared.heard[slot()], parity() ^ 1);
      const int index = atomicAdd(launch.ticket, 1);
      more = index < launch.tiles;
      const int4 tile = more ? find_tile(launch, cursor, index) : int4{-1, 0, 0, 0};
      send({tile, more ? read_factors(launch.stacks[tile.x], tile.y) : Factors{}});
    }
  }

  __device__ __forceinline__ int4 read_tile() const {
    hopper::barrier_wait(&shared.told[slot()], parity());
    const auto* words = const_cast<const volatile int*>(&shared.tickets[slot()].tile.x);
    return {words[0], words[1], words[2], words[3]};
  }
  // This thread reads the slot no more.
  __device__ __forceinline__ void leave_slot() { hopper::barrier_arrive_at(&shared.heard[slot()], 0); }
  __device__ __forceinline__ Tile as_tile(const int4& tile) const {
    return tile_of(tile.x, tile.y, tile.z, tile.w, tile.x >= 0 && launch.stacks[tile.x].symmetric, rank);
  }
  __device__ __forceinline__ Tile next_alone(bool loads) {
    const int4 tile = read_tile();
    if (loads) expect(shared, slot());
    leave_slot();
    ++turn;
    return as_tile(tile);
  }
  // For all threads of a warp.
  __device__ __forceinline__ Tile next() const {
    const int4 tile = read_tile();
    return as_tile({same(tile.x), same(tile.y), same(tile.z), same(tile.w)});
  }
  __device__ __forceinline__ Factors factors(const Tile&) {
    const auto& read = const_cast<const volatile Factors&>(shared.tickets[slot()].factors);
    const Factors factors = {same(read.alpha), same(read.c1), same(read.diagonal)};
    __syncwarp();
    if (threadIdx.x % 32 == 0) leave_slot();
    ++turn;
    return factors;
  }
};
// Of both blocks: the warps that multiply, the thread that loads and the two that store.
constexpr int kListeners = 2 * (2 * kGroup / 32 + 3);

template <bool Ordered, class Launch>
using Agenda = std::conditional_t<Ordered, Tickets<Launch>, Rounds<Launch>>;

// Returns true if the phases before this one have written what a tile reads.
__device__ __forceinline__ bool is_ready(const Stack& stack, int matrix) {
  return stack.needed == 0 || hopper::read_counter(stack.progress + matrix) >= stack.needed;
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

// The stages of a term from which on k runs down the columns of a tile's operands.
constexpr int kNever = 1 << 30;
struct DownFrom {
  int A, B;
};
template <Layouts Known>
__device__ __forceinline__ DownFrom down_from(const Stack& stack, int row, int column) {
  if constexpr (Known == Layouts::Along) {
    const auto after_block = [](int first) { return (first / kColumns + 1) * (kColumns / kDepth); };
    return {stack.A_lower ? after_block(row) : kNever, stack.B_lower ? after_block(column) : kNever};
  }
  const int A = stack.A_down ? 0 : kNever;
  return {A, Known == Layouts::Update ? 0 : A};
}

__device__ __forceinline__ void load_rows(const CUtensorMap* map, uint8_t (*A)[kChunk], uint64_t* full,
                                          const Tile& tile, int k, bool down) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    down ? hopper::load_box(map, A[i], full, tile.row[i], k, tile.matrix)
         : hopper::load_box(map, A[i], full, k, tile.row[i], tile.matrix);
  }
}

// Loads this block's half of the columns' operand into both blocks.
__device__ __forceinline__ void load_columns(const CUtensorMap* map, uint8_t (*B)[kChunk], uint64_t* full,
                                             const Tile& tile, int k, int rank, bool down) {
  constexpr int kHalf = kColumns / 64 / 2;
  const int column = tile.column + rank * kColumns / 2;
  B += rank * kHalf;
  if (down) {
    for (int i = 0; i < kHalf; ++i) hopper::load_box_for_both(map, B[i], full, column + 64 * i, k, tile.matrix);
  } else {
    hopper::load_box_for_both(map, B, full, k, column, tile.matrix);
  }
}

template <Layouts Known, bool Bytes, class Launch>
__device__ __forceinline__ void load_tile(const Launch& launch, Shared& shared, const Tile& tile, int rank,
                                          Ring& ring) {
  const Stack& stack = launch.stacks[tile.stack];
  const bool shares = shares_operand(stack, tile);
  for (int t = 0; t < 2; ++t) {
    const bool in_bytes = Bytes && t == 0 && stack.first_in_bytes;
    const int indices = in_bytes ? 2 * kDepth : kDepth;  // of one stage
    const DownFrom down = down_from<Known>(stack, tile.row[0], tile.column);
    for (int d = 0; d < stack.depths[t]; ++d, ring.advance()) {
      hopper::barrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
      uint64_t* full = &shared.full[ring.stage];
      hopper::barrier_expect(full, (shares ? kChunks - kRows / 64 : kChunks) * kChunk);
      const bool A_down = !in_bytes && d >= down.A, B_down = !in_bytes && d >= down.B;
      if (!shares) load_rows(&launch.maps[stack.A[t]], shared.stages[ring.stage], full, tile, d * indices, A_down);
      load_columns(&launch.maps[B_down ? stack.B_down[t] : stack.B[t]], shared.stages[ring.stage] + kRows / 64, full,
                   tile, d * indices, rank, B_down);
    }
  }
}

template <Layouts Known, bool Ordered, bool Bytes, class Launch>
__device__ __forceinline__ void load_tiles(const Launch& launch, Shared& shared, int rank) {
  Ring ring;
  Agenda<Ordered, Launch> agenda{launch, shared, rank};
  for (Tile tile = agenda.next_alone(true); tile.stack >= 0; tile = agenda.next_alone(true)) {
    if constexpr (Ordered) {
      while (!is_ready(launch.stacks[tile.stack], tile.matrix)) __nanosleep(20);
      hopper::fence_copies();
    }
    load_tile<Known, Bytes>(launch, shared, tile, rank, ring);
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
template <int Columns, bool A_down, bool B_down, bool InBytes>
__device__ __forceinline__ void multiply_stage(float (&sums)[128], uint64_t A, uint64_t B, bool first) {
  constexpr int kA16 = A_down ? 16 * 128 : 32,
                kB16 = B_down ? 16 * 128 : 32;  // bytes from 16 inner indices, or 32 in bytes, to the next
  hopper::wgmma_begin();
#pragma unroll
  for (int k = 0; k < kDepth / 16; ++k) {
    hopper::wgmma<Columns, A_down, B_down, InBytes>(sums, A + k * (kA16 >> 4), B + k * (kB16 >> 4), !first || k > 0);
  }
  hopper::wgmma_commit();
}
struct StageLayout {
  bool A_down, B_down, in_bytes;
};
template <int Columns, Layouts Known, bool Bytes>
__device__ __forceinline__ void multiply_stage(float (&sums)[128], uint64_t A, uint64_t B, bool first,
                                               const StageLayout& layout) {
  if (Bytes && layout.in_bytes) {
    multiply_stage<Columns, false, false, true>(sums, A, B, first);
  } else if (layout.A_down) {
    if (Known != Layouts::Along || layout.B_down) {
      multiply_stage<Columns, true, true, false>(sums, A, B, first);
    } else {
      multiply_stage<Columns, true, false, false>(sums, A, B, first);
    }
  } else if (Known == Layouts::Update || (Known == Layouts::Along && layout.B_down)) {
    multiply_stage<Columns, false, true, false>(sums, A, B, first);
  } else {
    multiply_stage<Columns, false, false, false>(sums, A, B, first);
  }
}

// The chunk of a stage that holds a warpgroup's rows.
__device__ __forceinline__ int chunk_of_rows(const Stack& stack, const Tile& tile, int row0, int group) {
  return shares_operand(stack, tile) ? kRows / 64 + (row0 - tile.column) / 64 : group;
}

// A warpgroup's share of a tile's product.
struct Share {
  int strips;       // the strips that its rows need
  int depth;        // stages
  int first_depth;  // of these, those of the first term
  bool in_bytes;    // the first term
  int chunk;        // of a stage, with its rows
  DownFrom down;
};

template <Layouts Known>
__device__ __forceinline__ StageLayout layout_of(const Share& share, int d) {
  if constexpr (Known != Layouts::Along) return {share.down.A == 0, share.down.B == 0, false};
  const bool second_term = d >= share.first_depth;
  const int stage = second_term ? d - share.first_depth : d;  // of its term
  return {stage >= share.down.A, stage >= share.down.B, share.in_bytes && !second_term};
}

// Other work that a warpgroup does while the tensor cores compute: parts, spread evenly over the first `stages` stages.
struct Aside {
  int parts, stages;
};

// Computes the product of the next stages. While the tensor cores work on a stage, it calls `meanwhile` for parts of some
// other work.
template <Layouts Known, bool Bytes, class Meanwhile>
__device__ __forceinline__ void multiply(float (&sums)[128], const Share& share, Shared& shared, Ring& ring,
                                         const Aside& aside, Meanwhile&& meanwhile) {
  const bool signals = threadIdx.x % kGroup == 0;
  int previous = 0, part = 0;
  for (int d = 0; d < share.depth || part < aside.parts; ++d) {
    if (d < share.depth) {
      hopper::barrier_wait(&shared.full[ring.stage], ring.parity);
      const uint64_t A = hopper::descriptor(shared_address(shared.stages[ring.stage][share.chunk]), kChunk);
      const uint64_t B = hopper::descriptor(shared_address(shared.stages[ring.stage][kRows / 64]), kChunk);
      if (Bytes && share.in_bytes && d == share.first_depth)
        hopper::wgmma_wait<0>();  // different instructions must not overlap
      const StageLayout layout = layout_of<Known>(share, d);
      const bool first = d == 0;
      if (share.strips >= kStrips) {
        multiply_stage<256, Known, Bytes>(sums, A, B, first, layout);
      } else if (share.strips == 3) {
        multiply_stage<192, Known, Bytes>(sums, A, B, first, layout);
      } else if (share.strips == 2) {
        multiply_stage<128, Known, Bytes>(sums, A, B, first, layout);
      } else {
        multiply_stage<64, Known, Bytes>(sums, A, B, first, layout);
      }
    }
#pragma unroll 1
    for (; part < aside.parts && part * aside.stages < (d + 1) * aside.parts; ++part) meanwhile(part);
    if (d < share.depth) {
      hopper::wgmma_wait<1>();  // the stage before this one has been read
      if (signals && d > 0) release(shared, previous);
      previous = ring.stage;
      ring.advance();
    }
  }
  hopper::wgmma_wait<0>();
  if (signals && share.depth > 0) release(shared, previous);
}

}  // namespace
}  // namespace prism::cuda
