#pragma once

// Multiplies the tiles of operands. Part of product_portable.cu. Asynchronous copies fetch the tiles of the next steps into
// shared memory, and warps load their parts of the next 16 inner indices into registers, while the tensor cores work.

#include "prism/cuda/blocks.cuh"
#include "prism/cuda/product.h"

namespace prism::cuda {
namespace {

constexpr int kHalves = 8;     // of one copy, 16 bytes
constexpr int kLastSteps = 8;  // from the call of `before_end` on

// The tile of a block: its size, its division among warps, the inner indices of one step, the steps in shared memory, and
// the blocks that share a multiprocessor.
template <int Rows, int Columns, int WarpsDown, int WarpsAcross, int Depth, int Stages, int Blocks>
struct Shape {
  static constexpr int kRows = Rows, kColumns = Columns, kDepth = Depth, kStages = Stages, kBlocks = Blocks;
  static constexpr int kWarpsAcross = WarpsAcross, kThreads = WarpsDown * WarpsAcross * kWarp;
  static constexpr int kWarpRows = Rows / WarpsDown, kWarpColumns = Columns / WarpsAcross;
  static constexpr int kStageHalves = (Rows + Columns) * Depth;
  static constexpr int kSharedBytes = Stages * kStageHalves * static_cast<int>(sizeof(__half));
};

// Starts a copy of 16 bytes to shared memory, or nothing.
__device__ void copy_if(bool wanted, __half* target, const __half* source) {
  asm volatile(
      "{.reg .pred wanted; setp.ne.b32 wanted, %2, 0; @wanted cp.async.cg.shared.global [%0], [%1], 16;}" ::"r"(
          shared_address(target)),
      "l"(source), "r"(static_cast<int>(wanted))
      : "memory");
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

// The tile of an operand in shared memory, as it is stored: lines of k or, if k runs down the columns, lines of outer
// indices. The pieces of a line change places, so that eight lines have the same piece in different banks.
template <bool Down, int Outer, int Depth>
struct OperandTile {
  static constexpr int kLines = Down ? Depth : Outer, kPieces = (Down ? Outer : Depth) / kHalves;
  static constexpr int kLineHalves = kPieces * kHalves;

  __device__ static int place(int line, int piece) {
    const int turn = kPieces >= 8 ? line % 8 : line / 2 % 4;
    return line * kLineHalves + (piece ^ turn) * kHalves;
  }
};

// One thread's copies of an operand, step after step. What is outside the matrix becomes 0.
template <bool Down, int Outer, int Depth, int Threads>
class Copier {
 public:
  using Tile = OperandTile<Down, Outer, Depth>;
  static constexpr int kLinesAtOnce = Threads / Tile::kPieces, kCopies = Tile::kLines / kLinesAtOnce;

  __device__ void begin(const Operand& operand, int matrix, int outer0, int outer, int k) {
    const int row = line() + (Down ? 0 : outer0), column = piece() * kHalves + (Down ? outer0 : 0);
    source_ = operand.data + matrix * operand.stride + static_cast<int64_t>(row) * operand.pitch + column;
    place_ = Tile::place(line(), piece());
    pitch_ = operand.pitch;
    outer_left_ = outer - outer0;
    k_left_ = k;
  }

  // Returns true if the next step's tile is inside the matrix.
  __device__ bool is_whole() const { return outer_left_ >= Outer && k_left_ >= Depth; }

  // Starts one of the copies of the next step, whose tile is whole, or nothing.
  __device__ void start_if(bool wanted, __half* tile, int copy) const {
    const int l = copy * kLinesAtOnce;
    copy_if(wanted, tile + place_ + l * Tile::kLineHalves, source_ + static_cast<int64_t>(l) * pitch_);
  }

  // Starts all copies of the next step. The loop is not unrolled: the compiler would turn it into predicated
  // instructions, which whole tiles would execute as well.
  __device__ void start_all(__half* tile) const {
    const int lines = (Down ? k_left_ : outer_left_) - line();
    const int halves = min(max((Down ? outer_left_ : k_left_) - piece() * kHalves, 0), kHalves);
#pragma unroll 1
    for (int l = 0; l < Tile::kLines; l += kLinesAtOnce)
      copy_or_zero(tile + place_ + l * Tile::kLineHalves, source_ + static_cast<int64_t>(l) * pitch_,
                   l < lines ? halves * static_cast<int>(sizeof(__half)) : 0);
  }

  // Moves to the step after the next.
  __device__ void advance() {
    source_ += Down ? static_cast<int64_t>(Depth) * pitch_ : Depth;
    k_left_ -= Depth;
  }

 private:
  static_assert(kLinesAtOnce % 8 == 0 && Tile::kLines % kLinesAtOnce == 0, "a thread's lines differ by multiples of 8");

  // The thread's first line and its piece of each line.
  __device__ static int line() { return static_cast<int>(threadIdx.x) / Tile::kPieces; }
  __device__ static int piece() { return static_cast<int>(threadIdx.x) % Tile::kPieces; }

  const __half* source_;
  int place_, pitch_, outer_left_, k_left_;
};

// The blocks of 16 outer and 16 inner indices of an operand that a warp loads from a tile, each as four blocks of 8×8.
// Each lane gives the start of one row: lanes 8q to 8q + 7 those of block q. Blocks 1 and 2 are those of the outer
// indices 8 to 15 and of the inner indices 8 to 15; in the operand of the columns it is the other way round.
template <class Tile, bool Down, bool OfColumns>
class Reader {
 public:
  __device__ explicit Reader(int outer) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, low = lane / 8 % 2, high = lane / 16;
    const int at_outer = outer / 8 + (OfColumns ? high : low), at_k = OfColumns ? low : high;
    place_ = Down ? Tile::place(8 * at_k + lane % 8, at_outer) : Tile::place(8 * at_outer + lane % 8, at_k);
  }

  // Loads the blocks `outer` blocks after the warp's first outer index and `k` blocks after the first inner one.
  __device__ void load(uint32_t (&blocks)[4], const __half* tile, int outer, int k) const {
    const int across = (Down ? outer : k) * 16, down = (Down ? k : outer) * 16;
    const uint32_t address = shared_address(tile + ((place_ ^ across) + down * Tile::kLineHalves));
    if constexpr (Down) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(blocks[0]), "=r"(blocks[1]), "=r"(blocks[2]), "=r"(blocks[3])
                   : "r"(address)
                   : "memory");
    } else {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(blocks[0]), "=r"(blocks[1]), "=r"(blocks[2]), "=r"(blocks[3])
                   : "r"(address)
                   : "memory");
    }
  }

 private:
  int place_;
};

// sums += A·Bᵀ for A of 16×16 and B of 8×16.
__device__ void multiply_add(float (&sums)[4], const uint32_t (&A)[4], uint32_t B0, uint32_t B1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B0), "r"(B1));
}

// The sums of a warp, in blocks of 16×8. A lane has two adjacent columns of rows lane/4 and lane/4 + 8.
template <class Shape>
using WarpSums = float[Shape::kWarpRows / 16][Shape::kWarpColumns / 8][4];

// The place of a tile in its matrix.
struct Place {
  int row, column;
};

// Computes the sums of a warp, whose part begins at `warp` of the tile at `tile`. Calls `before_end` in the first of
// the last steps.
template <class Shape, bool ADown, bool BDown, class Function>
__device__ __forceinline__ void multiply(WarpSums<Shape>& sums, const Product& product, int matrix, Place tile,
                                         Place warp, Function&& before_end) {
  extern __shared__ __align__(128) unsigned char memory[];
  constexpr int kDepth = Shape::kDepth, kStages = Shape::kStages, kBlocksOfK = kDepth / 16;
  constexpr int kBlocksDown = Shape::kWarpRows / 16, kBlocksAcross = Shape::kWarpColumns / 16;
  Copier<ADown, Shape::kRows, kDepth, Shape::kThreads> A;
  Copier<BDown, Shape::kColumns, kDepth, Shape::kThreads> B;
  const Reader<typename decltype(A)::Tile, ADown, false> reader_of_A(warp.row);
  const Reader<typename decltype(B)::Tile, BDown, true> reader_of_B(warp.column);

  const int first_steps = (product.terms[0].k + kDepth - 1) / kDepth;
  const int steps = first_steps + (product.term_count > 1 ? (product.terms[1].k + kDepth - 1) / kDepth : 0);
  const auto tile_of_A = [&](int stage) { return reinterpret_cast<__half*>(memory) + stage * Shape::kStageHalves; };
  const auto tile_of_B = [&](int stage) { return tile_of_A(stage) + Shape::kRows * kDepth; };
  const auto begin_term = [&](int step) {
    if (step != 0 && step != first_steps) return;
    const Term& term = product.terms[step == 0 ? 0 : 1];
    A.begin(term.A, matrix, tile.row, product.rows, term.k);
    B.begin(term.B, matrix, tile.column, product.columns, term.k);
  };
  const auto start_all = [&](int stage) {
    A.start_all(tile_of_A(stage));
    B.start_all(tile_of_B(stage));
  };
  const auto end_copies = [&] {
    A.advance();
    B.advance();
    commit_copies();  // an empty group, too, so that their number is known
  };

  uint32_t a[2][kBlocksDown][4], b[2][kBlocksAcross][4];
  const auto load = [&](int to, int stage, int k) {
#pragma unroll
    for (int i = 0; i < kBlocksDown; ++i) reader_of_A.load(a[to][i], tile_of_A(stage), i, k);
#pragma unroll
    for (int j = 0; j < kBlocksAcross; ++j) reader_of_B.load(b[to][j], tile_of_B(stage), j, k);
  };

  for (int step = 0; step < kStages - 1; ++step) {
    begin_term(step);
    if (step < steps) start_all(step);
    end_copies();
  }
  wait_for_copies<kStages - 2>();
  __syncthreads();
  load(0, 0, 0);
  // The copies of a step are spread over its products: many at once would block the loads behind them. The last 16 inner
  // indices have none.
  constexpr int kCopies = decltype(A)::kCopies + decltype(B)::kCopies, kPlaces = (kBlocksOfK - 1) * kBlocksDown;
  constexpr int kCopiesAtOnce = (kCopies + kPlaces - 1) / kPlaces;
  int stage = 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    if (step == max(steps - kLastSteps, 0)) before_end();
    const int next = stage + 1 < kStages ? stage + 1 : 0, last = stage > 0 ? stage - 1 : kStages - 1;
    const int copied = step + kStages - 1;
    begin_term(copied);
    const bool whole = A.is_whole() && B.is_whole();
    if (copied < steps && !whole) start_all(last);
#pragma unroll
    for (int k = 0; k < kBlocksOfK; ++k) {
      if (k + 1 < kBlocksOfK) {
        load((k + 1) % 2, stage, k + 1);
      } else {
        end_copies();
        wait_for_copies<kStages - 2>();
        __syncthreads();  // the next tiles have arrived, and everyone has read those of this step
        load((k + 1) % 2, next, 0);
      }
#pragma unroll
      for (int i = 0; i < kBlocksDown; ++i) {
#pragma unroll
        for (int j = 0; j < 2 * kBlocksAcross; ++j)
          multiply_add(sums[i][j], a[k % 2][i], b[k % 2][j / 2][j % 2 * 2], b[k % 2][j / 2][j % 2 * 2 + 1]);
#pragma unroll
        for (int c = (k * kBlocksDown + i) * kCopiesAtOnce; c < (k * kBlocksDown + i + 1) * kCopiesAtOnce; ++c) {
          if (c < A.kCopies) {
            A.start_if(copied < steps && whole, tile_of_A(last), c);
          } else if (c < kCopies) {
            B.start_if(copied < steps && whole, tile_of_B(last), c - A.kCopies);
          }
        }
      }
    }
    stage = next;
  }
}

}  // namespace
}  // namespace prism::cuda
