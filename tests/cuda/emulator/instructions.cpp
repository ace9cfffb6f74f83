// The instructions of hopper.cuh.

#include <cuda_fp8.h>

#include <algorithm>
#include <utility>

#include "prism/cuda/hopper.cuh"
#include "tests/cuda/emulator/tensor_map.h"

namespace prism::cuda::hopper {
namespace {

using emulator::Block;
using emulator::GroupProduct;
using emulator::kGroup;
using emulator::kWarp;
using emulator::later;
using emulator::Store;
using emulator::swizzled;
using emulator::TensorMap;

template <class Function>
void for_box(const TensorMap& map, const Function& function) {
  for (int row = 0; row < map.box_rows; ++row) {
    for (int column = 0; column < map.box_columns; ++column)
      function(row, column, static_cast<uint64_t>(row * map.box_columns + column) * static_cast<uint64_t>(map.element));
  }
}

void load_later(const TensorMap& map, Block& to, uint64_t destination, uint64_t barrier, int x, int y, int z) {
  if (destination % 1024 != 0) emulator::fail("a box does not begin where the swizzle's pattern does");
  later([map, &to, destination, barrier, x, y, z] {
    for_box(map, [&](int row, int column, uint64_t offset) {
      uint8_t* target = to.shared + swizzled(destination + offset, map.swizzle);
      const auto bytes = static_cast<size_t>(map.element);
      map.contains(x + column, y + row, z) ? memcpy(target, map.at(x + column, y + row, z), bytes)
                                           : memset(target, 0, bytes);
    });
    to.barrier(barrier).complete(map.box_bytes());
  });
}

float value_of(uint8_t e4m3) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(e4m3, __NV_E4M3))); }

// One operand of a product: `outer` rows of the indices of one instruction, 16 fp16 or 32 e4m3 numbers.
std::vector<float> operand(const Block& block, const GroupProduct& product, uint64_t descriptor, bool down, int outer) {
  const uint64_t base = (descriptor & 0xffffffff) * 16, chunk = (descriptor >> 32) * 16;
  const size_t inner = product.in_bytes ? 32 : 16;
  std::vector<float> values;
  values.reserve(static_cast<size_t>(outer) * inner);
  for (uint64_t i = 0; i < static_cast<uint64_t>(outer); ++i) {
    for (uint64_t k = 0; k < inner; ++k) {
      const uint64_t row = base + i / 8 * 1024 + i % 8 * 128;
      if (product.in_bytes) {
        values.push_back(value_of(block.shared[swizzled(row + k, 128)]));
        continue;
      }
      const uint64_t offset = down ? base + i / 64 * chunk + k * 128 + i % 64 * 2 : row + 2 * k;
      __half value;
      memcpy(&value, block.shared + swizzled(offset, 128), sizeof(value));
      values.push_back(__half2float(value));
    }
  }
  return values;
}

void multiply(const Block& block, const GroupProduct& product) {
  const size_t inner = product.in_bytes ? 32 : 16;
  const auto A = operand(block, product, product.A, product.A_down, 64);
  const auto B = operand(block, product, product.B, product.B_down, product.columns);
  for (int thread = 0; thread < kGroup; ++thread) {
    float* d = product.d[static_cast<size_t>(thread)];
    for (int i = 0; i < product.columns / 2; ++i) {
      const int row = thread / kWarp * 16 + thread % kWarp / 4 + 8 * (i / 2 % 2);
      const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
      const float *a = &A[static_cast<size_t>(row) * inner], *b = &B[static_cast<size_t>(column) * inner];
      float sum = 0;
      for (size_t k = 0; k < inner; ++k) sum += a[k] * b[k];
      d[i] = product.adds ? d[i] + sum : sum;
    }
  }
}

// Waits until all committed stores have come so far.
void wait_for_stores(bool Store::*progress) {
  emulator::Thread& thread = current();
  const auto is_done = [&](const auto& store) { return (*store).*progress; };
  while (!std::all_of(thread.stores.begin(), thread.stores.end(), is_done)) thread.of_stores.sleep();
}

// Lane 8i + r of a warp has the address of row r of block i. Lane 4r + j has columns 2j and 2j + 1 of row r in word i of
// its words, or, transposed, rows 2j and 2j + 1 of column r.
void store_blocks(uint32_t address, const std::array<uint32_t, 4>& words, bool transposes) {
  emulator::Warp& warp = current().warp();
  const auto lane = static_cast<size_t>(current().lane());
  warp.words[lane] = words;
  warp.meeting.meet(kWarp);
  const size_t block = lane / 8, row = lane % 8;
  for (size_t column = 0; column < 8; ++column) {
    const size_t of = transposes ? column : row, pair = transposes ? row : column;
    const auto value = static_cast<uint16_t>(warp.words[4 * of + pair / 2][block] >> (16 * (pair % 2)));
    memcpy(current().block->shared + address + 2 * column, &value, sizeof(value));
  }
  warp.meeting.meet(kWarp);
}

}  // namespace

void cluster_sync() {
  constexpr int kThreads = emulator::kClusterBlocks * 3 * kGroup;
  current().block->peer(0).of_cluster.meet(kThreads);
}

void send_at(void* destination, uint64_t* barrier, uint32_t rank, const int4& words) {
  Block& to = current().block->peer(rank);
  later([&to, place = shared_offset(destination), counts = shared_offset(barrier), words] {
    memcpy(to.shared + place, &words, sizeof(words));
    to.barrier(counts).complete(sizeof(words));
  });
}

void load_box(const CUtensorMap* map, void* destination, uint64_t* barrier, int x, int y, int z) {
  load_later(TensorMap::of(map), *current().block, shared_offset(destination), shared_offset(barrier), x, y, z);
}
void load_box_for_both(const CUtensorMap* map, void* destination, uint64_t* barrier, int x, int y, int z) {
  for (uint32_t rank = 0; rank < emulator::kClusterBlocks; ++rank) {
    Block& to = current().block->peer(rank);
    load_later(TensorMap::of(map), to, shared_offset(destination), shared_offset(barrier), x, y, z);
  }
}

// Reads shared memory at a random time, and writes device memory at another.
void store_box(const CUtensorMap* map, const void* source, int x, int y, int z) {
  emulator::Thread& thread = current();
  const auto store = std::make_shared<Store>();
  thread.open_stores.push_back(store);
  later([=, map = TensorMap::of(map), &thread, &from = *thread.block, place = shared_offset(source)] {
    std::vector<uint8_t> box(static_cast<size_t>(map.box_bytes()));
    for_box(map, [&](int, int, uint64_t offset) {
      memcpy(&box[offset], from.shared + swizzled(place + offset, map.swizzle), static_cast<size_t>(map.element));
    });
    store->was_read = true;
    thread.of_stores.wake();
    later([=, &thread, box = std::move(box)] {
      for_box(map, [&](int row, int column, uint64_t offset) {
        if (map.contains(x + column, y + row, z))
          memcpy(map.at(x + column, y + row, z), &box[offset], static_cast<size_t>(map.element));
      });
      store->was_written = true;
      thread.of_stores.wake();
    });
  });
}
void store_commit() {
  auto& open = current().open_stores;
  current().stores.insert(current().stores.end(), open.begin(), open.end());
  open.clear();
}
void store_wait_read() { wait_for_stores(&Store::was_read); }
void store_wait() {
  wait_for_stores(&Store::was_written);
  current().stores.clear();
}

void store_blocks(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  store_blocks(address, {a, b, c, d}, /*transposes=*/false);
}
void store_blocks_transposed(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  store_blocks(address, {a, b, c, d}, /*transposes=*/true);
}
void load_blocks(uint32_t address, uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
  emulator::Warp& warp = current().warp();
  const auto lane = static_cast<size_t>(current().lane());
  warp.values[lane] = address;
  warp.meeting.meet(kWarp);
  uint32_t* words[] = {&a, &b, &c, &d};
  for (size_t block = 0; block < 4; ++block)
    memcpy(words[block], current().block->shared + warp.values[8 * block + lane / 4] + lane % 4 * 4, sizeof(uint32_t));
  warp.meeting.meet(kWarp);
}

void wgmma_begin_product(float* d, const GroupProduct& product) {
  emulator::Group& group = current().group();
  const size_t thread = current().index.x % kGroup;
  group.d[thread] = d;
  group.meeting.meet(kGroup);
  if (thread == 0) group.begun.emplace_back(product).d = group.d;
  group.meeting.meet(kGroup);
}
void wgmma_commit() {
  emulator::Group& group = current().group();
  if (current().index.x % kGroup == 0) group.committed.push_back(std::exchange(group.begun, {}));
  group.meeting.meet(kGroup);
}
// Products read shared memory as late as they may.
void wgmma_wait_for(int pending) {
  emulator::Group& group = current().group();
  if (current().index.x % kGroup == 0) {
    for (; std::ssize(group.committed) > pending; group.committed.pop_front()) {
      for (const auto& product : group.committed.front()) multiply(*current().block, product);
    }
  }
  group.meeting.meet(kGroup);
}

}  // namespace prism::cuda::hopper
