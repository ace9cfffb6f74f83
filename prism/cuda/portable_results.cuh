#pragma once

// Finishes sums: stores matrices or updates weights, from the registers of a warp. Part of product_portable.cu.

#include "prism/cuda/eights.cuh"
#include "prism/cuda/portable_tiles.cuh"

namespace prism::cuda {
namespace {

struct Launch {
  Product product;
  Pointers pointers;
  Rates rates;
  const int* runs;  // on the device: 0 for no work; null: 1
};

// Results are finished in parts of 16×32, in blocks of 8×8: a lane has two adjacent columns of two rows of blocks.
using Part = float[2][4][2];
using PartOfHalves = uint32_t[2][4];

struct Lane {
  int row = static_cast<int>(threadIdx.x) % kWarp / 4;  // in a block
  int pair = static_cast<int>(threadIdx.x) % 4;
};

// Lane p of four has pair p of four blocks and receives all pairs of block p, or the other way round.
__device__ void exchange(uint32_t (&words)[4]) {
  const int pair = Lane().pair;
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & bit) != 0) continue;
      const bool upper = (pair & bit) != 0;
      const uint32_t received = __shfl_xor_sync(~0u, upper ? words[i] : words[i | bit], bit);
      (upper ? words[i] : words[i | bit]) = received;
    }
  }
}

// Replaces the upper triangle of a block by the lower one.
__device__ uint32_t mirrored(uint32_t block) {
  const Lane lane;
  const uint32_t other = transposed(block);
  const uint32_t keep = (lane.row >= 2 * lane.pair ? 0x0000ffffu : 0) | (lane.row > 2 * lane.pair ? 0xffff0000u : 0);
  return (block & keep) | (other & ~keep);
}

// Stores halves at `place` of a matrix and, if it is symmetric, mirrors them. May write between columns and pitch.
__device__ __forceinline__ void store(PartOfHalves& halves, __half* target, int pitch, const Product& product,
                                      Place place) {
  const Lane lane;
  const auto store_eight = [&](int row, int column, const uint32_t(&words)[4]) {
    *reinterpret_cast<uint4*>(target + static_cast<int64_t>(row) * pitch + column) =
        make_uint4(words[0], words[1], words[2], words[3]);
  };
  if (product.symmetric) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      uint32_t& block = halves[i / 4][i % 4];
      if (place.row + i / 4 * 8 == place.column + i % 4 * 8) block = mirrored(block);
    }
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
      uint32_t words[4] = {transposed(halves[0][j]), transposed(halves[1][j]), transposed(halves[0][j + 1]),
                           transposed(halves[1][j + 1])};
      exchange(words);
      const int row = place.column + 8 * (j + lane.pair / 2), column = place.row + 8 * (lane.pair % 2);
      if (row < column && column < product.columns) store_eight(row + lane.row, column, words);
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    exchange(halves[i]);
    const int row = place.row + 8 * i, column = place.column + 8 * lane.pair;
    if (row + lane.row < product.rows && column < product.columns && (!product.symmetric || column <= row))
      store_eight(row + lane.row, column, halves[i]);
  }
}

// The factors of an epilogue for one matrix.
struct Factors {
  float alpha, c1, beta, diagonal;
  __device__ Factors(const Epilogue& e, int matrix)
      : alpha(factor(e.alpha, e.alpha_of, matrix)),
        c1(factor(e.c1, e.c1_of, matrix)),
        beta(factor(e.beta, e.beta_of, matrix)),
        diagonal(factor(e.diagonal, e.diagonal_of, matrix)) {}
};

// Calls function(i, j, offset, row, column) for the pairs of a part that are inside the matrix, at least with their first
// element. Rows follow each other without a gap.
template <class Function>
__device__ __forceinline__ void for_pairs(const Product& product, Place place, Function&& function) {
  const Lane lane;
  const int row0 = place.row + lane.row, column0 = place.column + 2 * lane.pair;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int64_t offset = static_cast<int64_t>(row0 + 8 * i) * product.columns + column0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (row0 + 8 * i < product.rows && column0 + 8 * j < product.columns)
        function(i, j, offset + 8 * j, row0 + 8 * i, column0 + 8 * j);
    }
  }
}

// v += beta·C and C = v, for the lower triangle of symmetric results; the other one is mirrored.
__device__ __forceinline__ void update_C(Part& v, const Launch& launch, const Factors& factors, int matrix,
                                         Place place) {
  const Product& product = launch.product;
  const Epilogue& e = product.epilogue;
  auto* C = static_cast<float*>(launch.pointers.W[e.first + matrix]);
  const auto for_elements = [&](auto&& function) {
    for_pairs(product, place, [&](int i, int j, int64_t, int row, int column) {
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        if (column + t < product.columns && (!product.symmetric || row >= column + t))
          function(v[i][j][t], row, column + t);
      }
    });
  };
  const auto at = [&](int row, int column) -> float& {
    return C[static_cast<int64_t>(row) * product.columns + column];
  };
  if (e.reads_C) for_elements([&](float& x, int row, int column) { x = fmaf(factors.beta, at(row, column), x); });
  if (!e.writes_C || !applies(launch.rates.apply)) return;
  for_elements([&](float x, int row, int column) {
    at(row, column) = x;
    if (product.symmetric && row > column) at(column, row) = x;
  });
}

__device__ uint32_t packed(__half x, __half y) { return __half_as_ushort(x) | __half_as_ushort(y) << 16; }
__device__ __half half_of(uint32_t word, int t) {
  return __ushort_as_half(static_cast<unsigned short>(word >> 16 * t));
}

// Computes matrices from sums and stores them.
struct Matrices {
  const Launch& launch;
  const Factors& factors;
  int matrix;

  struct Inputs {  // eight elements of C1 in each of two rows
    uint32_t C1[2][4];
  };
  __device__ __forceinline__ void read(Inputs& inputs, Place place) const {
    const Product& product = launch.product;
    const Epilogue& e = product.epilogue;
    const Lane lane;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = place.row + 8 * i + lane.row, column = place.column + 8 * lane.pair;
      uint4 words = {};
      if (e.C1 != nullptr && row < product.rows && column < product.columns)
        words =
            *reinterpret_cast<const uint4*>(e.C1 + matrix * e.stride + static_cast<int64_t>(row) * e.pitch + column);
      inputs.C1[i][0] = words.x, inputs.C1[i][1] = words.y, inputs.C1[i][2] = words.z, inputs.C1[i][3] = words.w;
    }
  }

  __device__ __forceinline__ void finish(Part& v, Inputs& inputs, Place place) const {
    const Product& product = launch.product;
    const Epilogue& e = product.epilogue;
    const Lane lane;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (e.C1 != nullptr) exchange(inputs.C1[i]);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int t = 0; t < 2; ++t) {
          v[i][j][t] *= factors.alpha;
          if (e.C1 != nullptr) v[i][j][t] = fmaf(factors.c1, to_float(half_of(inputs.C1[i][j], t)), v[i][j][t]);
        }
      }
    }
    if (e.reads_C || e.writes_C) update_C(v, launch, factors, matrix, place);
    PartOfHalves high, low;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float(&x)[2] = v[i / 4][i % 4];
      if (place.row + i / 4 * 8 == place.column + i % 4 * 8) {
        if (lane.row == 2 * lane.pair) x[0] += factors.diagonal;
        if (lane.row == 2 * lane.pair + 1) x[1] += factors.diagonal;
      }
      const __half high0 = __float2half_rn(x[0]), high1 = __float2half_rn(x[1]);
      high[i / 4][i % 4] = packed(high0, high1);
      low[i / 4][i % 4] =
          packed(__float2half_rn(x[0] - __half2float(high0)), __float2half_rn(x[1] - __half2float(high1)));
    }
    if (e.high != nullptr) store(high, e.high + matrix * e.stride, e.pitch, product, place);
    if (e.low != nullptr) store(low, e.low + matrix * e.stride, e.pitch, product, place);
  }
};

// Two adjacent elements: at once if they are aligned, otherwise as many as are inside the matrix.
template <class T>
__device__ Pack<T, 2> load_two(const T* source, bool aligned, bool both) {
  if (aligned) return *reinterpret_cast<const Pack<T, 2>*>(source);
  return {source[0], both ? source[1] : source[0]};
}
template <class T>
__device__ void store_two(T* target, const Pack<T, 2>& two, bool aligned, bool both) {
  if (aligned) {
    *reinterpret_cast<Pack<T, 2>*>(target) = two;
  } else {
    target[0] = two.x[0];
    if (both) target[1] = two.x[1];
  }
}
template <class T>
__device__ bool are_pairs(const T* data, int columns) {
  return columns % 2 == 0 && reinterpret_cast<uintptr_t>(data) % sizeof(Pack<T, 2>) == 0;
}

// W ← (1 − lr·λ)W − lr·scale·sum. Only 16-bit weights have masters.
template <class T>
struct Weights {
  static constexpr bool kMasters = sizeof(T) < sizeof(float);
  const Product& product;
  T* W;
  float* master;
  float scale;
  DecayAndRate rate;
  bool pairs;

  __device__ Weights(const Launch& launch, const Factors& factors, int matrix) : product(launch.product) {
    const Epilogue& e = product.epilogue;
    W = static_cast<T*>(launch.pointers.W[e.first + matrix]);
    master = kMasters && e.has_master ? launch.pointers.master[e.first + matrix] : nullptr;
    scale = e.scale * factors.alpha;
    rate = decay_and_rate(launch.rates);
    pairs = are_pairs(W, product.columns) && are_pairs(master, product.columns);
  }

  struct Inputs {
    Pack<T, 2> W[2][4];
  };
  __device__ __forceinline__ void read(Inputs& old, Place place) const {
    for_pairs(product, place, [&](int i, int j, int64_t offset, int, int column) {
      old.W[i][j] = load_two(W + offset, pairs, both(column));
    });
  }

  __device__ __forceinline__ void finish(const Part& sums, Inputs& old, Place place) const {
    Pack<float, 2> x[2][4];
    for_pairs(product, place, [&](int i, int j, int64_t offset, int, int column) {
      if (kMasters && master != nullptr) x[i][j] = load_two(master + offset, pairs, both(column));
    });
    for_pairs(product, place, [&](int i, int j, int64_t offset, int, int column) {
      Pack<T, 2> w;
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        const T before = old.W[i][j].x[t];
        const float exact = kMasters && master != nullptr ? current_master(x[i][j].x[t], before) : to_float(before);
        x[i][j].x[t] = updated(exact, scale * sums[i][j][t], rate);
        w.x[t] = from_float<T>(x[i][j].x[t]);
      }
      store_two(W + offset, w, pairs, both(column));
      if (kMasters && master != nullptr) store_two(master + offset, x[i][j], pairs, both(column));
    });
  }

  __device__ bool both(int column) const { return column + 1 < product.columns; }
};

// Requests the cache lines of a tile of weights or masters.
template <class Shape>
__device__ __forceinline__ void prefetch_tile(const void* data, int size, const Product& product, Place tile) {
  constexpr int kLine = 128;
  const int lines = Shape::kColumns * size / kLine;  // of a row of the tile
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < Shape::kRows * lines; i += Shape::kThreads) {
    const int row = tile.row + i / lines, column = tile.column + i % lines * (kLine / size);
    if (row >= product.rows || column >= product.columns) continue;
    prefetch(static_cast<const char*>(data) + (static_cast<int64_t>(row) * product.columns + column) * size);
  }
}
template <class Shape>
__device__ __forceinline__ void prefetch_weights(const Launch& launch, int matrix, Place tile) {
  const Epilogue& e = launch.product.epilogue;
  prefetch_tile<Shape>(launch.pointers.W[e.first + matrix], e.weight == Real::Float32 ? sizeof(float) : sizeof(__half),
                       launch.product, tile);
  if (e.has_master) prefetch_tile<Shape>(launch.pointers.master[e.first + matrix], sizeof(float), launch.product, tile);
}

// Finishes the parts of a warp's sums that are needed. What a part reads is requested one part ahead. The sums move
// through the same registers, so that the code exists once.
template <class Shape, class Finisher>
__device__ __forceinline__ void finish(WarpSums<Shape>& sums, const Product& product, Place warp,
                                       const Finisher& finisher) {
  constexpr int kDown = Shape::kWarpRows / 16, kAcross = Shape::kWarpColumns / 32;
  const auto needed = [&](Place p) {
    return p.row < product.rows && p.column < product.columns && (!product.symmetric || p.row + 15 >= p.column);
  };
  typename Finisher::Inputs inputs, next;
  const auto read = [&](int i, int j) {
    const Place place{warp.row + 16 * i, warp.column + 32 * j};
    if (i < kDown && needed(place)) finisher.read(next, place);
  };
  read(0, 0);
#pragma unroll 1
  for (int i = 0; i < kDown; ++i) {
#pragma unroll
    for (int j = 0; j < kAcross; ++j) {
      inputs = next;
      j + 1 < kAcross ? read(i, j + 1) : read(i + 1, 0);
      const Place place{warp.row + 16 * i, warp.column + 32 * j};
      if (!needed(place)) continue;
      Part part;
#pragma unroll
      for (int e = 0; e < 16; ++e) part[e / 8][e / 2 % 4][e % 2] = sums[0][4 * j + e / 2 % 4][e / 8 * 2 + e % 2];
      finisher.finish(part, inputs, place);
    }
#pragma unroll
    for (int m = 0; m + 1 < kDown; ++m) {
#pragma unroll
      for (int e = 0; e < Shape::kWarpColumns / 2; ++e) sums[m][e / 4][e % 4] = sums[m + 1][e / 4][e % 4];
    }
  }
}

}  // namespace
}  // namespace prism::cuda
