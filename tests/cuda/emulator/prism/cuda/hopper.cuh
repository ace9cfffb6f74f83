#pragma once

// prism/cuda/hopper.cuh for the emulator.

#include <cuda.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "prism/cuda/instructions.cuh"

namespace prism::cuda::hopper {

using emulator::current, emulator::shared_offset, emulator::yield;

inline uint8_t* shared_memory() { return current().block->shared; }

inline void barrier_init(uint64_t* barrier, int arrivals) {
  current().block->barriers.insert_or_assign(shared_offset(barrier), emulator::Barrier(arrivals));
}
inline void barrier_init_visible() {}
inline void barrier_expect(uint64_t* barrier, int bytes) {
  yield();
  current().block->barrier(shared_offset(barrier)).arrive(bytes);
}
inline void barrier_arrive(uint64_t* barrier) { barrier_expect(barrier, 0); }
inline void barrier_wait(uint64_t* barrier, uint32_t parity) {
  current().block->barrier(shared_offset(barrier)).wait(parity);
}
inline bool barrier_has_left(uint64_t* barrier, uint32_t parity) {
  return current().block->barrier(shared_offset(barrier)).has_left(parity);
}
inline void named_barrier(int id, int threads) { current().block->named[static_cast<size_t>(id)].meet(threads); }
inline bool any_at_barrier(int id, int threads, bool condition) {
  return current().block->named[static_cast<size_t>(id)].meet(threads, condition);
}

inline uint32_t cluster_rank() { return static_cast<uint32_t>(current().block->rank); }
void cluster_sync();
inline void barrier_arrive_at(uint64_t* barrier, uint32_t rank) {
  yield();
  current().block->peer(rank).barrier(shared_offset(barrier)).arrive();
}
void send_at(void* destination, uint64_t* barrier, uint32_t rank, const int4& words);

inline int read_counter(const int* counter) {
  yield();
  return *counter;
}
inline int add_and_read(int* counter) { return emulator::add(counter, 1); }
inline void add_to_counter(int* counter) { add_and_read(counter); }
inline void fence_copies() {}

void load_box(const CUtensorMap* map, void* destination, uint64_t* barrier, int x, int y, int z);
void load_box_for_both(const CUtensorMap* map, void* destination, uint64_t* barrier, int x, int y, int z);
void store_box(const CUtensorMap* map, const void* source, int x, int y, int z);
void store_commit();
void store_wait_read();
void store_wait();
inline void store_fence() {}

inline void wait_for_previous() {}
inline void let_next_begin() {}
template <int Registers>
void more_registers() {}
template <int Registers>
void fewer_registers() {}

// In units of 16 bytes, of which callers add multiples.
inline uint64_t descriptor(uint32_t address, int chunk) {
  return static_cast<uint64_t>(chunk / 16) << 32 | address / 16;
}

void store_blocks(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d);
void store_blocks_transposed(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d);
void load_blocks(uint32_t address, uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d);

inline float subtract_here(float a, float b) { return a - b; }
inline float2 load_pair_here(const float* pair) { return *reinterpret_cast<const float2*>(pair); }

void wgmma_begin_product(float* d, const emulator::GroupProduct& product);
inline void wgmma_begin() {}
void wgmma_commit();
void wgmma_wait_for(int pending);
template <int Pending>
void wgmma_wait() {
  wgmma_wait_for(Pending);
}
template <int Columns, bool A_down, bool B_down, bool InBytes>
void wgmma(float (&d)[128], uint64_t A, uint64_t B, bool add) {
  emulator::GroupProduct product;
  product.A = A, product.B = B, product.columns = Columns;
  product.adds = add, product.A_down = A_down, product.B_down = B_down, product.in_bytes = InBytes;
  wgmma_begin_product(d, product);
}

}  // namespace prism::cuda::hopper
