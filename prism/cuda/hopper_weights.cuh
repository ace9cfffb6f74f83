#pragma once

// What the product kernel does with finished sums that update weights. Part of product_hopper.cu.

#include "prism/cuda/hopper_halves.cuh"

namespace prism::cuda {
namespace {

// The place of four neighbours in a strip of float32; rows are exchanged so that a warp's accesses spread over the
// banks.
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

  __device__ __forceinline__ Weights(const Launch& launch, const Stack& stack, int matrix)
      : rows(stack.rows), columns(stack.columns) {
    const Epilogue& e = stack.epilogue;
    W = static_cast<T*>(launch.pointers.W[e.first + matrix]);
    master = e.has_master ? launch.pointers.master[e.first + matrix] : nullptr;
    fours = columns % 4 == 0 && reinterpret_cast<uintptr_t>(W) % sizeof(Four<T>) == 0;
  }

  // A strip that lies inside, in fours: nothing is asked element by element, and all reads are under way before the
  // first is used.
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
    for (int i = 0; i < kShare; ++i)
      values[i] = *reinterpret_cast<const Four<S>*>(source + offset(row0, column0, share(i)));
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
  __device__ __forceinline__ void update_strip(Four<float> (&w)[kShare], const float* P, float alpha,
                                               const Write& write, int row0, int column0) const {
    if (!is_plain(row0, column0)) return update_edge(P, alpha, write, row0, column0);
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
      const auto u = *reinterpret_cast<const Four<float>*>(P + four(share(i).row, share(i).column));
      for (int k = 0; k < 4; ++k) w[i].x[k] = updated(w[i].x[k], alpha * u.x[k], write);
    }
    if (master != nullptr) store_plain(master, w, row0, column0);
    store_plain(W, w, row0, column0);
  }

  __device__ __forceinline__ void update_edge(const float* P, float alpha, const Write& write, int row0,
                                              int column0) const {
#pragma unroll 1
    for (int i = threadIdx.x % kGroup; i < kStrip * kStrip; i += kGroup) {
      const Place at = {i / kStrip, i % kStrip};
      if (row0 + at.row >= rows || column0 + at.column >= columns) continue;
      const int64_t here = offset(row0, column0, at);
      const float x =
          updated(master != nullptr ? master[here] : to_float(W[here]), alpha * P[four(at.row, at.column)], write);
      if (master != nullptr) master[here] = x;
      W[here] = from_float<T>(x);
    }
  }
};

__device__ __forceinline__ void stage_strip(float* staged, const float (&sums)[128], int strip) {
  const Place mine = place();
  const auto stage = [&](int first) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int at = four(mine.row + 8 * (i % 2), 8 * (i / 2) + mine.column);
      hopper::store_here(hopper::shared_address(staged + at), sums[first + 2 * i], sums[first + 2 * i + 1]);
    }
  };
  switch (strip) {
    case 0:
      return stage(0);
    case 1:
      return stage(32);
    case 2:
      return stage(64);
    default:
      return stage(96);
  }
}

// Brings the weights of a tile into the cache while its product is formed.
__device__ __forceinline__ void prefetch_weights(const Launch& launch, const Stack& stack, const Tile& tile,
                                                 int group) {
  const Epilogue& e = stack.epilogue;
  const int size = e.has_master || e.weight == Real::Float32 ? 4 : 2;
  const auto* W = static_cast<const char*>(e.has_master ? launch.pointers.master[e.first + tile.matrix]
                                                        : launch.pointers.W[e.first + tile.matrix]);
  constexpr int kLine = 128;
  const int lines = kColumns * size / kLine;
  for (int i = threadIdx.x % kGroup; i < kStrip * lines; i += kGroup) {
    const int row = tile.row + group * kStrip + i / lines, column = tile.column + i % lines * kLine / size;
    if (row < stack.rows && column < stack.columns)
      hopper::prefetch_L2(W + (static_cast<int64_t>(row) * stack.columns + column) * size);
  }
}

// Forms the tiles of an update and writes the weights. A strip's weights are read while the one before it is written,
// the first strip's while the product is formed.
template <bool A_down, bool B_down, class T>
__device__ __forceinline__ void update_tiles(const Launch& launch, Shared& shared, int group, int rank) {
  const bool applied = applies(launch.rates.apply);
  const Write write = read_write(launch.rates);
  auto* staged = reinterpret_cast<float*>(shared.strips[group]);
  Ring ring;
  for (int round = 0, index = index_of(0); index < launch.tiles; index = index_of(++round)) {
    const Tile tile = find_tile(launch, index, rank);
    const Stack& stack = launch.stacks[tile.stack];
    const float alpha = read_factors(stack, tile.matrix).alpha;
    const Weights<T> weights(launch, stack, tile.matrix);
    const int row0 = tile.row + group * kStrip;
    Four<float> next[kShare];
    if (applied) {
      prefetch_weights(launch, stack, tile, group);
      weights.load_strip(next, row0, tile.column);
    }
    float sums[128];
    multiply<A_down, B_down>(sums, stack.depths[0] + stack.depths[1], group, shared, ring);
    if (!applied) continue;
#pragma unroll 1
    for (int strip = 0; strip < kStrips; ++strip) {
      const int column0 = tile.column + strip * kStrip;
      hopper::named_barrier(1 + group, kGroup);  // the strip before this one has been read
      stage_strip(staged, sums, strip);
      Four<float> w[kShare];
#pragma unroll
      for (int i = 0; i < kShare; ++i) w[i] = next[i];
      if (strip + 1 < kStrips) weights.load_strip(next, row0, column0 + kStrip);
      hopper::named_barrier(1 + group, kGroup);
      weights.update_strip(w, staged, alpha, write, row0, column0);
    }
  }
}

}  // namespace
}  // namespace prism::cuda
