#pragma once

// Finishes sums that update weights. Part of product_hopper.cu.

#include "prism/cuda/hopper_halves.cuh"

namespace prism::cuda {
namespace {

using UpdateParameters = Parameters<Result::Weights, false>;

// Weights are loaded and stored in slices of 64 rows and 32 columns, in two buffers.
constexpr int kSlices = kColumns / kSlice;

// The weights of a matrix: W, or the float32 masters that W is a copy of.
template <class T>
struct Weights {
  T* W;
  float* master;
  int rows, columns;

  __device__ __forceinline__ Weights(const UpdateParameters::Launch& launch, const Stack& stack, int matrix)
      : rows(stack.rows), columns(stack.columns) {
    const Epilogue& e = stack.epilogue;
    W = static_cast<T*>(launch.pointers.W[e.first + matrix]);
    master = e.has_master ? launch.pointers.master[e.first + matrix] : nullptr;
  }

  __device__ __forceinline__ bool is_mapped() const {
    return master != nullptr ? can_be_mapped(master, columns, sizeof(float)) : can_be_mapped(W, columns, sizeof(T));
  }

  // Two adjacent weights in a slice in shared memory, with the copy engine's swizzle.
  template <class S>
  struct alignas(2 * sizeof(S)) Two {
    S x, y;
  };
  template <class S>
  __device__ __forceinline__ static Two<S>& two_at(uint8_t* slice, int row, int column) {
    constexpr int kPieces = kSlice * sizeof(S) / 16;
    const int index = column * static_cast<int>(sizeof(S)) / 16 ^ row / (8 / kPieces) % kPieces;
    return *reinterpret_cast<Two<S>*>(slice + (row * kPieces + index) * 16 + column * sizeof(S) % 16);
  }

  // Writes W ← (1 − lr·λ)W − lr·scale·u for a slice in shared memory; u is in the order of the sums. If S is wider than
  // T, the slice holds masters.
  template <class S>
  __device__ __forceinline__ void update_slice(const uint32_t (&u)[8], float scale, const DecayAndRate& factors,
                                               int row0, int column0, uint8_t* slice) const {
    constexpr bool kMasters = sizeof(S) > sizeof(T);
    const Place mine = place();
    const auto row_of = [&](int i) { return mine.row + 8 * (i % 2); };
    const auto column_of = [&](int i) { return 8 * (i / 2) + mine.column; };
    const auto copy_of = [&](int i) { return W + offset(row0 + row_of(i), column0 + column_of(i)); };
    const auto inside = [&](int i) { return row0 + row_of(i) < rows && column0 + column_of(i) < columns; };
    constexpr int kAhead = 4;  // weights read before the first is written; more would not fit the registers
#pragma unroll
    for (int first = 0; first < 8; first += kAhead) {
      Two<T> copies[kAhead];
      if constexpr (kMasters) {
#pragma unroll
        for (int i = first; i < first + kAhead; ++i) {
          if (inside(i)) copies[i - first] = {copy_of(i)[0], copy_of(i)[1]};
        }
      }
      Two<S> w[kAhead];
#pragma unroll
      for (int i = first; i < first + kAhead; ++i) w[i - first] = two_at<S>(slice, row_of(i), column_of(i));
#pragma unroll
      for (int i = first; i < first + kAhead; ++i) {
        const float2 two = unpacked(u[i]);
        float x = to_float(w[i - first].x), y = to_float(w[i - first].y);
        if constexpr (kMasters) x = current_master(x, copies[i - first].x), y = current_master(y, copies[i - first].y);
        x = updated(x, scale * two.x, factors), y = updated(y, scale * two.y, factors);
        two_at<S>(slice, row_of(i), column_of(i)) = {from_float<S>(x), from_float<S>(y)};
        if constexpr (kMasters) {
          if (inside(i)) copy_of(i)[0] = from_float<T>(x), copy_of(i)[1] = from_float<T>(y);
        }
      }
    }
  }
  // The same in device memory, for matrices that the copy engine cannot access.
  __device__ __forceinline__ void update_directly(const uint32_t (&u)[8], float scale, const DecayAndRate& factors,
                                                  int row0, int column0) const {
    const Place mine = place();
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int row = row0 + mine.row + 8 * (i / 2 % 2), column = column0 + 8 * (i / 4) + mine.column + i % 2;
      if (row >= rows || column >= columns) continue;
      const int64_t here = offset(row, column);
      const float2 two = unpacked(u[i / 2]);
      const float w = updated(master != nullptr ? current_master(master[here], W[here]) : to_float(W[here]),
                              scale * (i % 2 == 0 ? two.x : two.y), factors);
      if (master != nullptr) master[here] = w;
      W[here] = from_float<T>(w);
    }
  }

  __device__ __forceinline__ int64_t offset(int row, int column) const {
    return static_cast<int64_t>(row) * columns + column;
  }
};

// Updates the weights of a tile that waits in registers, in parts: each requests a slice of weights, if one is left, and
// updates the one that the part before requested.
constexpr int kPartsOfUpdate = kSlices + 1;
template <class T>
__device__ __forceinline__ void update_part(const Pairs& pairs, int part, const UpdateParameters& parameters,
                                            const Part& tile, const DecayAndRate& factors, Shared& shared, int group) {
  if (tile.stack < 0) return;
  const Stack& stack = parameters.launch.stacks[tile.stack];
  const CUtensorMap* map = &parameters.weights[stack.epilogue.first + tile.matrix];
  const Weights<T> weights(parameters.launch, stack, tile.matrix);
  const bool leads = threadIdx.x % kGroup == 0, mapped = weights.is_mapped();
  if (leads && mapped && part < kSlices) {
    hopper::store_wait_read();  // the slice before the last has been stored, and leaves its place to this one
    uint64_t* arrived = &shared.arrived[group][part % 2];
    hopper::barrier_expect(arrived, kStrip * kSlice * (weights.master != nullptr ? 4 : sizeof(T)));
    hopper::load_box(map, shared.strips[group][part % 2], arrived, tile.column0 + part * kSlice, tile.row0, 0);
  }
  if (part == 0) return;
  const int slice = part - 1, column0 = tile.column0 + slice * kSlice;
  uint32_t u[8];
  for_strip(slice / 2, [&](int s) {
#pragma unroll
    for (int i = 0; i < 8; ++i) u[i] = slice % 2 == 0 ? pairs[16 * s + i] : pairs[16 * s + 8 + i];
  });
  const float scale = stack.epilogue.scale / kHeldUpdate;
  if (!mapped) return weights.update_directly(u, scale, factors, tile.row0, column0);
  uint8_t* place = shared.strips[group][slice % 2];
  hopper::barrier_wait(&shared.arrived[group][slice % 2], slice / 2 % 2);
  weights.master != nullptr ? weights.template update_slice<float>(u, scale, factors, tile.row0, column0, place)
                            : weights.template update_slice<T>(u, scale, factors, tile.row0, column0, place);
  hopper::store_fence();
  hopper::named_barrier(1 + group, kGroup);
  if (!leads) return;
  hopper::store_box(map, place, column0, tile.row0, 0);
  hopper::store_commit();
}

// Computes the tiles of an update. A tile waits in registers, as fp16; its weights are updated while the product of the
// next tile is computed.
template <class T>
__device__ __forceinline__ void update_tiles(const UpdateParameters& parameters, Shared& shared, int group, int rank) {
  const auto& launch = parameters.launch;
  const bool applied = applies(launch.rates.apply);
  const DecayAndRate factors = decay_and_rate(launch.rates);
  Ring ring;
  Pairs pairs;
  Part finished;
  Rounds<UpdateParameters::Launch> agenda{launch, shared, rank};
  for (;;) {
    const Tile tile = agenda.next();
    const bool more = tile.stack >= 0;  // after the last tile only weights remain to be updated
    const Stack& stack = launch.stacks[more ? tile.stack : 0];
    float sums[128];
    const Share share = {.strips = kStrips,
                         .depth = more ? stack.depths[0] + stack.depths[1] : 0,
                         .first_depth = stack.depths[0],
                         .in_bytes = false,
                         .chunk = group,
                         .down = down_from<Layouts::Update>(stack, 0, 0)};
    multiply<Layouts::Update, /*Bytes=*/false>(sums, share, shared, ring, {kPartsOfUpdate, share.depth}, [&](int part) {
      update_part<T>(pairs, part, parameters, finished, factors, shared, group);
    });
    if (!more) break;
    if (!applied) continue;
    const float alpha = kHeldUpdate * read_factors(stack, tile.matrix).alpha;
#pragma unroll
    for (int i = 0; i < 64; ++i) pairs[i] = packed(alpha * sums[2 * i], alpha * sums[2 * i + 1]);
    finished = {tile.stack, tile.matrix, group == 0 ? tile.row[0] : tile.row[1], tile.column};
  }
  if (threadIdx.x % kGroup == 0) hopper::store_wait();
}

}  // namespace
}  // namespace prism::cuda
