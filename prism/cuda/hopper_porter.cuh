#pragma once

// The porter of a warpgroup: a thread that stores its tiles and loads C1 with the copy engine, so that the warps that
// multiply need not wait for device memory. Part of product_hopper.cu.

#include "prism/cuda/hopper_halves.cuh"

namespace prism::cuda {
namespace {

// The strips in shared memory go back and forth between a warpgroup and its porter. The porter lends them, empty or with
// C1; the warps fill or read them and return them (`Strips`). Both find the same turns from the same tiles.
template <class Launch>
struct Porter {
  const Launch& launch;
  Shared& shared;
  int group;
  uint32_t turn = 0;

  __device__ __forceinline__ uint8_t* strip(int i) const { return shared.strips[group][i]; }
  __device__ __forceinline__ void lend() { hopper::barrier_arrive(&shared.lent[group]); }
  __device__ __forceinline__ void get_back() { hopper::barrier_wait(&shared.returned[group], turn++ % 2); }

  // Lends empty strips; stores what comes back, a strip and its transpose if it has one.
  __device__ __forceinline__ void store(const CUtensorMap* map, const Stack& stack, const Part& part, int column0,
                                        bool in_bytes) {
    const uint8_t* mirrored = in_bytes ? strip(0) + kBytesOfStrip : strip(1);
    lend();
    get_back();
    hopper::store_box(map, strip(0), column0, part.row0, part.matrix);
    if (mirror_of(stack, part.row0, column0, in_bytes) == Mirror::Beside)
      hopper::store_box(map, mirrored, part.row0, column0, part.matrix);
    hopper::store_commit();
    hopper::store_wait_read();
  }

  template <bool Bytes>
  __device__ __forceinline__ void store_pairs(const Part& part) {
    const Stack& stack = launch.stacks[part.stack];
    if (stack.epilogue.high == nullptr) return;
    if (!is_needed(stack, part.row0, part.column0)) lend(), get_back();  // see write_pairs
#pragma unroll 1
    for (int column0 = part.column0; column0 < part.column0 + kColumns; column0 += kStrip) {
      if (!is_needed(stack, part.row0, column0)) return;
      store(&launch.maps[stack.high], stack, part, column0, /*in_bytes=*/false);
      if (Bytes && stack.epilogue.bytes != nullptr)
        store(&launch.maps[stack.bytes], stack, part, column0, /*in_bytes=*/true);
    }
  }

  template <bool Bytes>
  __device__ __forceinline__ void store_lows(const Part& part) {
    const Stack& stack = launch.stacks[part.stack];
#pragma unroll 1
    for (int column0 = part.column0; column0 < part.column0 + kColumns; column0 += kStrip) {
      if (!is_needed(stack, part.row0, column0)) return;
      store(&launch.maps[stack.low], stack, part, column0, Bytes && stack.epilogue.low_in_bytes);
    }
  }

  // Lends two strips of C1, which arrive later.
  __device__ __forceinline__ void lend_C1(const Part& part, int pair) {
    const Stack& stack = launch.stacks[part.stack];
    const int column0 = part.column0 + 2 * pair * kStrip;
    const bool first = is_needed(stack, part.row0, column0), second = is_needed(stack, part.row0, column0 + kStrip);
    hopper::barrier_expect(&shared.lent[group], (first + second) * kChunk);
    const CUtensorMap* map = &launch.maps[stack.C1];
    if (first) hopper::load_box(map, strip(0), &shared.lent[group], column0, part.row0, part.matrix);
    if (second) hopper::load_box(map, strip(1), &shared.lent[group], column0 + kStrip, part.row0, part.matrix);
  }

  // Signals that this warpgroup's part of a tile is written, and that nothing more is read for it.
  __device__ __forceinline__ void signal(const Part& part) const {
    hopper::store_wait();
    hopper::fence_copies();
    hopper::add_to_counter(launch.stacks[part.stack].progress + part.matrix);
  }
};

template <bool Ordered, bool Bytes, class Launch>
__device__ __forceinline__ void carry_strips(const Launch& launch, Shared& shared, int group, int rank) {
  Porter<Launch> porter{launch, shared, group};
  Agenda<Ordered, Launch> agenda{launch, shared, rank};
  Part finished;
  for (;;) {
    const Tile tile = agenda.next_alone(false);
    const Part next = {tile.stack, tile.matrix, group == 0 ? tile.row[0] : tile.row[1], tile.column};
    const Stack& stack = launch.stacks[next.stack >= 0 ? next.stack : 0];
    const bool adds = next.stack >= 0 && stack.epilogue.C1 != nullptr;
    if (finished.stack >= 0) porter.template store_pairs<Ordered && Bytes>(finished);
    bool ready = adds && (!Ordered || is_ready(stack, next.matrix));
    if (ready) {
      if (Ordered) hopper::fence_copies();
      porter.lend_C1(next, 0);
    }
    if (Ordered && finished.stack >= 0) porter.signal(finished);
    if (adds && !ready) {
      while (!is_ready(stack, next.matrix)) __nanosleep(20);
      hopper::fence_copies();
      porter.lend_C1(next, 0);
    }
    if (adds) {
      porter.get_back();
      porter.lend_C1(next, 1);
      porter.get_back();
    }
    if (next.stack < 0) break;
    if (stack.epilogue.low != nullptr) porter.template store_lows<Bytes>(next);
    finished = next;
  }
  hopper::store_wait();
}

}  // namespace
}  // namespace prism::cuda
