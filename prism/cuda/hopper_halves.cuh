#pragma once

// What the product kernel does with finished sums that become fp16 matrices, plain or mirrored. Part of
// product_hopper.cu.

#include "prism/cuda/hopper_tiles.cuh"

namespace prism::cuda {
namespace {

// The place of a thread's sums in its warpgroup's 64×256: sums[4j + 2h + e] is row `row + 8h`, column `8j + column +
// e`.
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
__device__ __forceinline__ float2 unpacked(uint32_t pair) {
  return __half22float2(reinterpret_cast<const __half2&>(pair));
}

// A strip of 64×64 in shared memory: rows of 128 bytes with their 16-byte pieces exchanged as the copy engine's swizzle
// does it.
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

// Stores a strip, or its transpose.
__device__ __forceinline__ void store_strip(const uint32_t (&values)[16], const void* strip) {
#pragma unroll
  for (int i = 0; i < 16; i += 4) {
    hopper::store_blocks(block_address(strip, i / 2), values[i], values[i + 1], values[i + 2], values[i + 3]);
  }
}
__device__ __forceinline__ void store_transposed(const uint32_t (&values)[16], const void* strip) {
#pragma unroll
  for (int i = 0; i < 16; i += 4) {
    hopper::store_blocks_transposed(transposed_address(strip, i / 2), values[i], values[i + 1], values[i + 2],
                                    values[i + 3]);
  }
}

// Stores a strip on the diagonal so that right of it stands what lies left of it: blocks left of it go to both places,
// those right of it aside, and those on it are mirrored here.
__device__ __forceinline__ void store_mirrored(const uint32_t (&values)[16], const void* strip, const void* aside) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % kGroup / 32;
  const int right = lane % 4 * 2 - lane / 4;  // columns from the diagonal of a block to the first of the two values
  const int row = warp * 2 + lane / 8 % 2, column = lane / 16;
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    uint32_t blocks[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      blocks[i] = values[2 * j + i];
      if (j + i / 2 != warp * 2 + i % 2) continue;
      const uint32_t mirrored = hopper::transposed(blocks[i]);
      if (right > 0) blocks[i] = mirrored;
      if (right == 0) blocks[i] = __byte_perm(blocks[i], mirrored, 0x7610);
    }
    const auto& [a, b, c, d] = blocks;
    hopper::store_blocks(block_address(j + column <= row ? strip : aside, j), a, b, c, d);
    hopper::store_blocks_transposed(transposed_address(j + column < row ? strip : aside, j), a, b, c, d);
  }
}

// Writes a strip of fp16 values, and its mirror image where the result is symmetric.
__device__ __forceinline__ void write_strip(const uint32_t (&values)[16], const CUtensorMap* map, const Stack& stack,
                                            int matrix, int row0, int column0, uint8_t (*strips)[kChunk], int group) {
  const bool leads = threadIdx.x % kGroup == 0;
  const bool diagonal = stack.symmetric && row0 == column0;
  const bool mirrors = stack.symmetric && !diagonal;
  if (leads) hopper::store_wait_read();
  hopper::named_barrier(1 + group, kGroup);
  if (diagonal) {
    store_mirrored(values, strips[0], strips[1]);
  } else {
    store_strip(values, strips[0]);
    if (mirrors) store_transposed(values, strips[1]);
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
__device__ __forceinline__ void add_float32(float2& v, const Launch& launch, const Epilogue& e, int matrix, int n,
                                            int row, int column) {
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

// alpha·P of one strip. The strips are finished in a loop, since all of them unrolled would not fit the instruction
// cache; registers have no index, so here the strips are told apart.
__device__ __forceinline__ void scale_strip(float (&v)[32], const float (&sums)[128], int strip, float alpha) {
  const auto scale = [&](int first) {
#pragma unroll
    for (int i = 0; i < 32; ++i) v[i] = hopper::multiply_here(alpha, sums[first + i]);
  };
  switch (strip) {
    case 0:
      return scale(0);
    case 1:
      return scale(32);
    case 2:
      return scale(64);
    default:
      return scale(96);
  }
}

__device__ __forceinline__ void add_C1(float (&v)[32], float c1, const uint8_t* C1) {
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    uint32_t added[4];
    hopper::load_blocks(block_address(C1, j), added);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 c = unpacked(added[i]);
      v[4 * j + 2 * i] = fmaf(c1, c.x, v[4 * j + 2 * i]);
      v[4 * j + 2 * i + 1] = fmaf(c1, c.y, v[4 * j + 2 * i + 1]);
    }
  }
}

__device__ __forceinline__ void add_diagonal(float (&v)[32], float diagonal) {
  const Place mine = place();
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int right = 8 * (i / 2) + mine.column - mine.row - 8 * (i % 2);
    if (right == 0) v[2 * i] += diagonal;
    if (right == -1) v[2 * i + 1] += diagonal;
  }
}

// v = alpha·P + c1·C1 + beta·C + diagonal·I of one strip, into its fp16 halves or into C. Most strips need only a part
// of it, and instructions are what an epilogue waits for: hence the branches, taken by all threads alike.
template <Result Kind>
__device__ __forceinline__ void finish_strip(const float (&sums)[128], int strip, const Factors& f,
                                             const Launch& launch, const Stack& stack, int matrix, int row0,
                                             int column0, const uint8_t* C1, uint8_t (*strips)[kChunk], int group) {
  float v[32];
  scale_strip(v, sums, strip, f.alpha);
  if (f.adds) add_C1(v, f.c1, C1);
  if (row0 == column0) add_diagonal(v, f.diagonal);
  uint32_t halves[16];
  const Place mine = place();
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    float2 pair = {v[2 * i], v[2 * i + 1]};
    if constexpr (Kind == Result::Float32) {
      add_float32(pair, launch, stack.epilogue, matrix, stack.columns, row0 + mine.row + 8 * (i % 2),
                  column0 + 8 * (i / 2) + mine.column);
      v[2 * i] = pair.x, v[2 * i + 1] = pair.y;
    }
    halves[i] = packed(pair.x, pair.y);
  }
  if (f.has_high) write_strip(halves, &stack.high, stack, matrix, row0, column0, strips, group);
  if (!f.has_low) return;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const float2 rounded = unpacked(halves[i]);
    halves[i] = packed(v[2 * i] - rounded.x, v[2 * i + 1] - rounded.y);
  }
  write_strip(halves, &stack.low, stack, matrix, row0, column0, strips, group);
}

// Forms and finishes the tiles of fp16 results.
template <bool A_down, bool B_down, Result Kind>
__device__ __forceinline__ void multiply_tiles(const Launch& launch, Shared& shared, int group, int rank) {
  const bool leads = threadIdx.x % kGroup == 0;
  Ring ring;
  for (int round = 0, index = index_of(0); index < launch.tiles; index = index_of(++round)) {
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
        finish_strip<Kind>(sums, strip, factors, launch, stack, tile.matrix, row0, column0,
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

}  // namespace
}  // namespace prism::cuda
