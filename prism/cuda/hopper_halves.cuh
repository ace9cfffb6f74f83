#pragma once

// Finishes sums that become fp16 matrices, plain or mirrored. Part of product_hopper.cu.

#include <cuda_fp8.h>

#include "prism/cuda/blocks.cuh"
#include "prism/cuda/hopper_tiles.cuh"

namespace prism::cuda {
namespace {

// The position of a thread's sums in its warpgroup's 64×256 tile: sums[4j + 2h + e] is in row `row + 8h` and column
// `8j + column + e`.
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

// The offset of a 16-byte piece in a strip of 64×64 in shared memory: rows of 128 bytes whose pieces are permuted by
// the copy engine's swizzle.
__device__ __forceinline__ uint32_t piece(int row, int eight) { return row * 128 + ((eight ^ row % 8) << 4); }

// The address of this lane's row of the four 8×8 blocks at columns 8j and 8(j + 1) of the warp's sixteen rows.
__device__ __forceinline__ uint32_t block_address(const void* strip, int j) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % kGroup / 32, block = lane / 8;
  return shared_address(strip) + piece(warp * 16 + block % 2 * 8 + lane % 8, j + block / 2);
}
__device__ __forceinline__ uint32_t transposed_address(const void* strip, int j) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % kGroup / 32, block = lane / 8;
  return shared_address(strip) + piece((j + block / 2) * 8 + lane % 8, warp * 2 + block % 2);
}

// The copies that are written of a strip.
//   None    as it is
//   Beside  as it is, and mirrored from the second of two buffers
//   Within  on the diagonal: the part left of the diagonal is mirrored to its right
enum class Mirror { None, Beside, Within };

// Mirrored copies in bytes are never left out, because matrices in bytes are read as a whole.
__device__ __forceinline__ Mirror mirror_of(const Stack& stack, int row0, int column0, bool in_bytes) {
  const bool lower = !in_bytes && stack.epilogue.lower;
  if (!stack.symmetric || (lower && row0 / kColumns != column0 / kColumns)) return Mirror::None;
  return row0 == column0 ? Mirror::Within : Mirror::Beside;
}

// Stores a strip into the first of two buffers.
template <Mirror kMirror>
__device__ __forceinline__ void store_strip(const uint32_t (&v)[16], uint8_t (*strips)[kChunk]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % kGroup / 32;
#pragma unroll
  for (int j = 0; j < 8; j += 2) {  // two columns of 8×8 blocks, from column 8j on
    uint32_t b[4] = {v[2 * j], v[2 * j + 1], v[2 * j + 2], v[2 * j + 3]};
    if constexpr (kMirror != Mirror::Within) {
      hopper::store_blocks(block_address(strips[0], j), b[0], b[1], b[2], b[3]);
      if constexpr (kMirror == Mirror::Beside)
        hopper::store_blocks_transposed(transposed_address(strips[1], j), b[0], b[1], b[2], b[3]);
    } else {
      // Blocks left of the diagonal go to both buffers, those right of it are set aside, and those on it are mirrored
      // here.
      const int right = lane % 4 * 2 - lane / 4;  // columns from the diagonal of a block to the first of the two values
      const int row = warp * 2 + lane / 8 % 2, column = lane / 16;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (j + i / 2 != warp * 2 + i % 2) continue;
        const uint32_t mirrored = transposed(b[i]);
        if (right > 0) b[i] = mirrored;
        if (right == 0) b[i] = __byte_perm(b[i], mirrored, 0x7610);
      }
      hopper::store_blocks(block_address(strips[j + column <= row ? 0 : 1], j), b[0], b[1], b[2], b[3]);
      hopper::store_blocks_transposed(transposed_address(strips[j + column < row ? 0 : 1], j), b[0], b[1], b[2], b[3]);
    }
  }
}

// A strip in bytes: word j has columns c = 8j + place().column and c + 1 of rows r = place().row and r + 8, in the order
// (r, c), (r + 8, c), (r, c + 1), (r + 8, c + 1).
using StripOfBytes = uint32_t[8];

constexpr int kBytesOfStrip = kStrip * kStrip;

// Converts sixteen pairs of fp16 in the order of the sums, times a factor.
__device__ __forceinline__ void convert(const uint32_t* pairs, float scale, StripOfBytes& bytes) {
  const auto converted = [&](uint32_t pair) -> uint32_t {
    const __half2 scaled = __hmul2(reinterpret_cast<const __half2&>(pair), __float2half2_rn(scale));
    return __nv_cvt_halfraw2_to_fp8x2(scaled, __NV_SATFINITE, __NV_E4M3);
  };
#pragma unroll
  for (int j = 0; j < 8; ++j) bytes[j] = __byte_perm(converted(pairs[2 * j]), converted(pairs[2 * j + 1]), 0x5140);
}

// The address of sixteen columns of a strip in bytes: rows of 64 bytes with the copy engine's swizzle.
__device__ __forceinline__ uint32_t sixteen_address(const uint8_t* strip, int row, int sixteen) {
  return shared_address(strip) + row * 64 + ((sixteen ^ row / 2 % 4) << 4);
}

// Stores a strip in bytes into the first of two buffers, or mirrored, as store_strip. An 8×8 block of 16-bit elements is
// then 8 rows of sixteen columns: its elements are columns i and i + 8, or transposed rows i and i + 8.
__device__ __forceinline__ void store_bytes(const StripOfBytes& bytes, Mirror mirror, uint8_t* strips) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % kGroup / 32, block = lane / 8;
#pragma unroll
  for (int g = 0; g < 4; g += 2) {  // two groups of sixteen columns
    uint32_t b[4];                  // eight rows of each group, then the next eight
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t left = bytes[2 * (g + i)], right = bytes[2 * (g + i) + 1];
      b[2 * i] = __byte_perm(left, right, 0x6240);
      b[2 * i + 1] = __byte_perm(left, right, 0x7351);
      if (mirror != Mirror::Within || g + i != warp) continue;
      const int beyond = lane % 4 * 2 - lane / 4;  // columns from the diagonal to the first of two
      b[2 * i] = __byte_perm(b[2 * i], transposed(left), 0x7050 | (beyond > 0 ? 4 : 0) | (beyond >= 0 ? 0x600 : 0x200));
      b[2 * i + 1] = __byte_perm(b[2 * i + 1], transposed(right),
                                 0x200 | (beyond > 0 ? 0x50 : 0x10) | (beyond >= 0 ? 0x7000 : 0x3000));
    }
    // On the diagonal, what is right of it is set aside.
    const int group = g + block / 2;
    const uint8_t* plain = strips + (mirror == Mirror::Within && group > warp ? kBytesOfStrip : 0);
    const uint8_t* mirrored = strips + (mirror == Mirror::Within && group < warp ? 0 : kBytesOfStrip);
    hopper::store_blocks(sixteen_address(plain, warp * 16 + block % 2 * 8 + lane % 8, group), b[0], b[1], b[2], b[3]);
    if (mirror != Mirror::None)
      hopper::store_blocks_transposed(sixteen_address(mirrored, (2 * g + block) * 8 + lane % 8, warp), bytes[2 * g],
                                      bytes[2 * g + 1], bytes[2 * g + 2], bytes[2 * g + 3]);
  }
}

// A warpgroup's part of a tile.
struct Part {
  int stack = -1;  // none
  int matrix, row0, column0;
};

// A part as pairs of fp16 in registers, in the order of the sums: first C1, then the result, until it is written.
using Pairs = uint32_t[64];

// Calls a function with the index of a strip as a constant: registers cannot be indexed at run time. Strips are
// processed in a loop, because unrolled code for all of them would not fit the instruction cache.
template <class Function>
__device__ __forceinline__ void for_strip(int strip, Function&& function) {
  switch (strip) {
    case 0:
      return function(0);
    case 1:
      return function(1);
    case 2:
      return function(2);
    default:
      return function(3);
  }
}

// The strips in shared memory that a warpgroup borrows from its porter (hopper_porter.cuh).
struct Strips {
  uint8_t (*data)[kChunk];
  uint64_t *lent, *returned;
  uint32_t turn = 0;

  __device__ __forceinline__ Strips(Shared& shared, int group)
      : data(shared.strips[group]), lent(&shared.lent[group]), returned(&shared.returned[group]) {}
  __device__ __forceinline__ void take() const { hopper::barrier_wait(lent, turn % 2); }
  __device__ __forceinline__ void give_back() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) hopper::barrier_arrive(returned);
    ++turn;
  }
};

// Hands a strip to the porter.
__device__ __forceinline__ void write_strip(const uint32_t (&v)[16], Mirror mirror, Strips& strips) {
  strips.take();
  switch (mirror) {
    case Mirror::None:
      store_strip<Mirror::None>(v, strips.data);
      break;
    case Mirror::Beside:
      store_strip<Mirror::Beside>(v, strips.data);
      break;
    case Mirror::Within:
      store_strip<Mirror::Within>(v, strips.data);
  }
  hopper::store_fence();
  strips.give_back();
}
__device__ __forceinline__ void write_bytes(const StripOfBytes& bytes, Mirror mirror, Strips& strips) {
  strips.take();
  store_bytes(bytes, mirror, strips.data[0]);
  hopper::store_fence();
  strips.give_back();
}

// Writes a strip of a finished part, and its copy in bytes if there is one.
template <bool Bytes, class Launch>
__device__ __forceinline__ void write_pairs(const Pairs& pairs, int strip, const Launch& launch, const Part& part,
                                            Strips& strips) {
  if (part.stack < 0) return;
  const Stack& stack = launch.stacks[part.stack];
  const int column0 = part.column0 + strip * kStrip;
  if (stack.epilogue.high == nullptr) return;
  if (!is_needed(stack, part.row0, column0)) {
    if (strip == 0) strips.take(), strips.give_back();  // the porter signals a tile only when it has been computed
    return;
  }
  uint32_t v[16];
  for_strip(strip, [&](int s) {
#pragma unroll
    for (int i = 0; i < 16; ++i) v[i] = pairs[16 * s + i];
  });
  write_strip(v, mirror_of(stack, part.row0, column0, /*in_bytes=*/false), strips);
  if (Bytes && stack.epilogue.bytes != nullptr) {
    StripOfBytes bytes;
    for_strip(strip, [&](int s) { convert(&pairs[16 * s], 1 / kLowInBytes, bytes); });
    write_bytes(bytes, mirror_of(stack, part.row0, column0, /*in_bytes=*/true), strips);
  }
}

// Takes two strips of C1 that the porter has brought.
constexpr int kPartsOfC1 = kStrips / 2;
__device__ __forceinline__ void take_C1(Pairs& pairs, int part, Strips& strips) {
  strips.take();
#pragma unroll 1
  for (int k = 0; k < 2; ++k) {
    const void* from = strips.data[k];
    const uint32_t address[4] = {block_address(from, 0), block_address(from, 2), block_address(from, 4),
                                 block_address(from, 6)};
    for_strip(2 * part + k, [&](int s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t* p = &pairs[16 * s + 4 * i];
        hopper::load_blocks(address[i], p[0], p[1], p[2], p[3]);
      }
    });
  }
  strips.give_back();
}

// Asks for a strip of C, an averaged covariance, which is in no cache before. Each thread asks for half a row.
template <class Launch>
__device__ __forceinline__ void prefetch_float32(const Launch& launch, const Stack& stack, int matrix, int row0,
                                                 int column0) {
  if (!stack.epilogue.reads_C || !is_needed(stack, row0, column0)) return;
  const int thread = threadIdx.x % kGroup, n = stack.columns;
  const int row = row0 + thread / 2, column = column0 + thread % 2 * (kStrip / 2);
  if (row >= n || column >= n) return;
  const auto* C = static_cast<const float*>(launch.pointers.W[stack.epilogue.first + matrix]);
  prefetch(C + static_cast<int64_t>(row) * n + column);
}

// Adds beta·C to v, and writes v to C if asked, for a strip. In strips that are whole, and in a matrix with even rows,
// elements come in pairs.
template <class Launch>
__device__ __forceinline__ void add_float32(float (&v)[32], const Launch& launch, const Epilogue& e, int matrix, int n,
                                            int row0, int column0) {
  const Place mine = place();
  const int row = row0 + mine.row, column = column0 + mine.column;
  auto* C = static_cast<float*>(launch.pointers.W[e.first + matrix]);
  float* here = C + static_cast<int64_t>(row) * n + column;
  float* mirrored = C + static_cast<int64_t>(column) * n + row;
  const float beta = e.reads_C ? factor(e.beta, e.beta_of, matrix) : 0;
  const bool writes = e.writes_C && applies(launch.rates.apply) && !leaves_C(e, matrix);
  const bool in_pairs =
      n % 2 == 0 && reinterpret_cast<uintptr_t>(C) % sizeof(float2) == 0 && row0 + kStrip <= n && column0 + kStrip <= n;
  if (in_pairs) {
    if (e.reads_C) {
      float2 old[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) old[i] = hopper::load_pair_here(here + i % 2 * 8 * n + i / 2 * 8);
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        v[2 * i] = fmaf(beta, old[i].x, v[2 * i]);
        v[2 * i + 1] = fmaf(beta, old[i].y, v[2 * i + 1]);
      }
    }
    if (!writes) return;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int down = i % 2 * 8, right = i / 2 * 8;
      const float2 pair = {v[2 * i], v[2 * i + 1]};
      float* target = here + down * n + right;
      if (column + right + 1 <= row + down) {
        *reinterpret_cast<float2*>(target) = pair;
        mirrored[right * n + down] = pair.x;
        mirrored[(right + 1) * n + down] = pair.y;
      } else if (column + right <= row + down) {
        *target = mirrored[right * n + down] = pair.x;
      }
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int down = 8 * (i / 2 % 2), right = 8 * (i / 4) + i % 2;
    if (row + down >= n || column + right >= n) continue;
    if (e.reads_C) v[i] = fmaf(beta, here[down * n + right], v[i]);
    if (writes && column + right <= row + down) here[down * n + right] = mirrored[right * n + down] = v[i];
  }
}

// Adds the squares of a warpgroup's part of a tile to those of its matrix. The last warpgroup of a matrix sums the
// parts, in a fixed order, and computes the factors.
__device__ __forceinline__ void add_squares(float mine, const Stack& stack, const Tile& tile, int row0, Shared& shared,
                                            int group) {
  const int lane = threadIdx.x % 32;
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) % kGroup / 32, 0);
  hopper::named_barrier(1 + group, kGroup);  // the sums of the tile before have been read
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) mine += __shfl_down_sync(0xffffffff, mine, offset);
  if (lane == 0) shared.squares[group][warp] = mine;
  hopper::named_barrier(1 + group, kGroup);
  if (warp != 0) return;
  const Norms& norms = stack.epilogue.norms;
  // Strips of rows, four in a row of tiles, and columns identify the part.
  const int strip = row0 / kStrip, column = tile.column / kColumns, down = strip / kSignals;
  const int places = stack.tiles_of_one * kSignals;
  float* parts = norms.squares + static_cast<int64_t>(tile.matrix) * places;
  bool is_last = false;
  if (lane == 0) {
    const float* warps = shared.squares[group];
    *const_cast<volatile float*>(parts + (triangle(down) + column) * kSignals + strip % kSignals) =
        (warps[0] + warps[1]) + (warps[2] + warps[3]);
    is_last = hopper::add_and_read(norms.arrived + tile.matrix) + 1 == places;
  }
  if (!__any_sync(0xffffffff, is_last)) return;
  float sum = 0;
  for (int i = lane; i < places; i += 32) sum += *const_cast<volatile float*>(parts + i);
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffff, sum, offset);
  if (lane != 0) return;
  const float factor = sum == 0 ? 1 : norms.scale * rsqrtf(sum);
  norms.factor[tile.matrix] = factor;
  norms.square[tile.matrix] = factor * factor;
  norms.update[tile.matrix] *= factor * rsqrtf(factor);
}

// Computes v = alpha·P + c1·C1 + beta·C + diagonal·I in place of the sums, and its fp16 half in pairs, in place of C1.
// The number of instructions limits the speed here, and most strips need only some of the terms: hence the branches,
// which all threads take alike. Returns this thread's part of ‖v‖² if asked for it.
template <Result Kind, class Launch>
__device__ __forceinline__ float finish_sums(float (&sums)[128], Pairs& pairs, const Factors& f, const Launch& launch,
                                             const Stack& stack, int matrix, int row0, int column0, bool norms) {
  const Place mine = place();
  float squares = 0;
#pragma unroll
  for (int strip = 0; strip < kStrips; ++strip, column0 += kStrip) {
    if (!is_needed(stack, row0, column0)) break;
    auto& v = reinterpret_cast<float(&)[32]>(sums[32 * strip]);
    auto& p = reinterpret_cast<uint32_t(&)[16]>(pairs[16 * strip]);
#pragma unroll
    for (int i = 0; i < 32; ++i) v[i] *= f.alpha;
    if (stack.epilogue.C1 != nullptr) {
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const float2 c = unpacked(p[i]);
        v[2 * i] = fmaf(f.c1, c.x, v[2 * i]);
        v[2 * i + 1] = fmaf(f.c1, c.y, v[2 * i + 1]);
      }
    }
    if (row0 == column0) {
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int right = 8 * (i / 2) + mine.column - mine.row - 8 * (i % 2);
        const bool inside = row0 + mine.row + 8 * (i % 2) < stack.rows;
        if (right == 0 && inside) v[2 * i] += f.diagonal;
        if (right == -1 && inside) v[2 * i + 1] += f.diagonal;
      }
    }
    if constexpr (Kind == Result::Float32) add_float32(v, launch, stack.epilogue, matrix, stack.columns, row0, column0);
    if (norms) {  // a strip on the diagonal is symmetric, the others count twice; outside the result v is 0
      float sum = 0;
#pragma unroll
      for (int i = 0; i < 32; ++i) sum = fmaf(v[i], v[i], sum);
      squares += row0 == column0 ? sum : 2 * sum;
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) p[i] = packed(v[2 * i], v[2 * i + 1]);
  }
  return squares;
}

// Writes the low halves of a finished tile: what its fp16 values leave out.
template <bool Bytes>
__device__ __forceinline__ void write_lows(const float (&sums)[128], const Pairs& pairs, const Stack& stack, int row0,
                                           int column0, Strips& strips) {
#pragma unroll 1
  for (int strip = 0; strip < kStrips; ++strip, column0 += kStrip) {
    if (!is_needed(stack, row0, column0)) break;
    uint32_t v[16];
    for_strip(strip, [&](int s) {
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const float2 high = unpacked(pairs[16 * s + i]);
        v[i] = packed(hopper::subtract_here(sums[32 * s + 2 * i], high.x),
                      hopper::subtract_here(sums[32 * s + 2 * i + 1], high.y));
      }
    });
    if (Bytes && stack.epilogue.low_in_bytes) {
      StripOfBytes bytes;
      convert(v, kLowInBytes, bytes);
      write_bytes(bytes, mirror_of(stack, row0, column0, /*in_bytes=*/true), strips);
    } else {
      write_strip(v, mirror_of(stack, row0, column0, /*in_bytes=*/false), strips);
    }
  }
}

// Computes and finishes the tiles of fp16 results. While the product of the next tile is computed, the finished tile is
// handed to the porter, and C1 is taken for the next. In a sequence, it is handed over at once if the next tile is not
// ready: that tile may wait for this one.
template <Layouts Known, Result Kind, bool Ordered, bool Bytes, class Launch>
__device__ __forceinline__ void multiply_tiles(const Launch& launch, Shared& shared, int group, int rank) {
  constexpr bool kNorms = Known == Layouts::Same;
  Ring ring;
  Pairs pairs;
  Part finished;
  Strips strips(shared, group);
  Agenda<Ordered, Launch> agenda{launch, shared, rank};
  for (Tile tile = agenda.next();;) {
    const bool more = tile.stack >= 0;  // after the last tile only writes remain
    const Stack& stack = launch.stacks[more ? tile.stack : 0];
    const int row0 = group == 0 ? tile.row[0] : tile.row[1];
    bool goes = more;
    if constexpr (Ordered) {
      if (more && finished.stack >= 0) {
        // If its first stage is loaded, it is ready; that is faster to see.
        const bool ready =
            threadIdx.x % kGroup == 0 &&
            (hopper::barrier_has_left(&shared.full[ring.stage], ring.parity) || is_ready(stack, tile.matrix));
        goes = __any_sync(0xffffffff, hopper::any_at_barrier(1 + group, kGroup, ready));
      }
    }
    float sums[128];
    const Share share = {.strips = needed_strips(stack, tile, row0),
                         .depth = goes ? stack.depths[0] + stack.depths[1] : 0,
                         .first_depth = stack.depths[0],
                         .in_bytes = stack.first_in_bytes,
                         .chunk = chunk_of_rows(stack, tile, row0, group),
                         .down = down_from<Known>(stack, row0, tile.column)};
    const int parts = kStrips + (goes && stack.epilogue.C1 != nullptr ? kPartsOfC1 : 0);
    // In a sequence other tiles may wait for the finished one, so it is written early.
    const Aside aside = {parts, Ordered ? min(share.depth, parts) : share.depth};
    multiply<Known, Ordered && Bytes>(sums, share, shared, ring, aside, [&](int part) {
      if (part < kStrips) {
        if (Kind == Result::Float32 && goes)
          prefetch_float32(launch, stack, tile.matrix, row0, tile.column + part * kStrip);
        write_pairs<Ordered && Bytes>(pairs, part, launch, finished, strips);
      } else {
        take_C1(pairs, part - kStrips, strips);
      }
    });
    if (!more) break;
    finished.stack = -1;
    if (!goes) continue;
    const bool norms = kNorms && stack.epilogue.norms.squares != nullptr;
    const float squares =
        finish_sums<Kind>(sums, pairs, agenda.factors(tile), launch, stack, tile.matrix, row0, tile.column, norms);
    if (stack.epilogue.low != nullptr) write_lows<Bytes>(sums, pairs, stack, row0, tile.column, strips);
    if (norms) add_squares(squares, stack, tile, row0, shared, group);
    finished = {tile.stack, tile.matrix, row0, tile.column};
    tile = agenda.next();
  }
}

}  // namespace
}  // namespace prism::cuda
