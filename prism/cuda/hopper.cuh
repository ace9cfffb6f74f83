#pragma once

// The instructions of compute capability 9.0a that CUDA C++ has no names for: barriers that count bytes, the tensor
// copy engine (TMA) and the warpgroup's matrix product (wgmma). PTX ISA 8.0, sections "mbarrier",
// "cp.async.bulk.tensor" and "wgmma". The tests have another version of this file, for CPUs.

#include <cuda.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "prism/cuda/instructions.cuh"

namespace prism::cuda::hopper {

// The dynamic shared memory of a block, with the alignment of the swizzle's pattern.
__device__ inline uint8_t* shared_memory() {
  extern __shared__ __align__(1024) uint8_t memory[];
  return memory;
}

__device__ inline void barrier_init(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}
__device__ inline void barrier_init_visible() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ inline void barrier_expect(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
__device__ inline void barrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Waits until the barrier has left the phase of this parity. Everything that the arrivals released is then visible.
__device__ inline void barrier_wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
// Returns true if the barrier has left that phase.
__device__ inline bool barrier_has_left(uint64_t* barrier, uint32_t parity) {
  int left = 0;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.s32 %0, 1, 0, done;\n"
      "}\n"
      : "=r"(left)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return left != 0;
}
// Waits at a barrier of `threads` threads of the block; id 0 is the barrier of __syncthreads.
__device__ inline void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// The same, and returns true if the condition holds for any of the threads.
__device__ inline bool any_at_barrier(int id, int threads, bool condition) {
  int any = 0;
  asm volatile(
      "{\n"
      ".reg .pred mine, all;\n"
      "setp.ne.s32 mine, %1, 0;\n"
      "barrier.cta.red.or.pred all, %2, %3, mine;\n"
      "selp.s32 %0, 1, 0, all;\n"
      "}\n"
      : "=r"(any)
      : "r"(static_cast<int>(condition)), "r"(id), "r"(threads)
      : "memory");
  return any != 0;
}

// The two blocks of a cluster.
__device__ inline uint32_t cluster_rank() {
  uint32_t rank = 0;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Arrives at the barrier at the same address in block `rank`.
__device__ inline void barrier_arrive_at(uint64_t* barrier, uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}

// Sends 16 bytes to the same address in block `rank`, whose barrier counts them. Takes no fence, unlike a store followed
// by an arrival.
__device__ inline void send_at(void* destination, uint64_t* barrier, uint32_t rank, const int4& words) {
  asm volatile(
      "{\n"
      ".reg .b32 there, its_barrier;\n"
      "mapa.shared::cluster.u32 there, %0, %2;\n"
      "mapa.shared::cluster.u32 its_barrier, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [there], {%3, %4, %5, %6}, [its_barrier];\n"
      "}\n" ::"r"(shared_address(destination)),
      "r"(shared_address(barrier)), "r"(rank), "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w)
      : "memory");
}

// Counters in device memory through which the blocks of a kernel wait for each other.
__device__ inline int read_counter(const int* counter) {
  int value = 0;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}
__device__ inline void add_to_counter(int* counter) {
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
}
// Adds 1 and returns the old value. What all earlier callers wrote is then visible.
__device__ inline int add_and_read(int* counter) {
  int old = 0;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;" : "=r"(old) : "l"(counter) : "memory");
  return old;
}
// Orders accesses to device memory of the copy engine and of this thread's instructions.
__device__ inline void fence_copies() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// Copies one box of a tensor map to shared memory; the barrier counts its bytes. Elements outside the tensor arrive as
// zero.
__device__ inline void load_box(const CUtensorMap* map, void* destination, uint64_t* barrier, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
          "r"(shared_address(destination)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z)
      : "memory");
}
// Copies one box to the same address in both blocks of the cluster; the barrier of each counts its bytes.
__device__ inline void load_box_for_both(const CUtensorMap* map, void* destination, uint64_t* barrier, int x, int y,
                                         int z) {
  constexpr uint16_t kBoth = 3;
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, "
      "%4, %5}], [%2], %6;" ::"r"(shared_address(destination)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "h"(kBoth)
      : "memory");
}
// Copies a box of shared memory to the tensor. Elements outside the tensor are not written. The thread that calls this
// must also wait for it.
__device__ inline void store_box(const CUtensorMap* map, const void* source, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
               "r"(shared_address(source)), "r"(x), "r"(y), "r"(z)
               : "memory");
}
__device__ inline void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until the sources of all groups may be overwritten.
__device__ inline void store_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ inline void store_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
// Makes a thread's writes to shared memory visible to the copy engine.
__device__ inline void store_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// With programmatic dependent launch, a kernel may begin before the previous one has ended. It must wait before it
// reads anything. It lets its own follower begin as soon as there is room.
__device__ inline void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ inline void let_next_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

template <int Registers>
__device__ inline void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ inline void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

__device__ inline void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Pending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// Describes a matrix in shared memory, in rows of 128 bytes whose 16-byte pieces are permuted by TMA's 128-byte
// swizzle. Along k: each row holds 64 inner indices; groups of 8 rows follow each other. Down k: each row holds 64
// outer indices of one inner index; the next 64 outer indices lie `chunk` bytes further on.
__device__ inline uint64_t descriptor(uint32_t address, int chunk) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kEightRows = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kEightRows | static_cast<uint64_t>(chunk >> 4) << 16 | (address & 0x3FFFF) >> 4;
}

// Copy four 8×8 blocks of 16-bit elements between the registers of a warp and rows of 16 bytes in shared memory, plain
// or transposed.
__device__ inline void store_blocks(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}
__device__ inline void store_blocks_transposed(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}

__device__ inline void load_blocks(uint32_t address, uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "r"(address)
               : "memory");
}

// Returns a − b, computed exactly here: if branches differ only in the registers they read, the compiler would move the
// subtraction out of them and copy registers instead.
__device__ inline float subtract_here(float a, float b) {
  float difference;
  asm("sub.rn.f32 %0, %1, %2;" : "=f"(difference) : "f"(a), "f"(b));
  return difference;
}

// Reads a pair here, in the order of the program: left to the compiler, reads move next to their uses, and each takes long.
__device__ inline float2 load_pair_here(const float* pair) {
  float2 v;
  asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(pair));
  return v;
}

#define PRISM_8(i)                                                                                            \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define PRISM_32(i) PRISM_8(i), PRISM_8(i + 8), PRISM_8(i + 16), PRISM_8(i + 24)

#define PRISM_NAMES_0                                                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PRISM_NAMES_1                                                                \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define PRISM_NAMES_2                                                                \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define PRISM_NAMES_3                                                                            \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
// In the assembly, the operands are numbered after the sums.
#define PRISM_WGMMA_OF(shape_and_types, names, a, b, adds, layouts, ...)                                      \
  asm volatile(                                                                                               \
      "{\n"                                                                                                   \
      ".reg .pred add;\n"                                                                                     \
      "setp.ne.b32 add, %" #adds                                                                              \
      ", 0;\n"                                                                                                \
      "wgmma.mma_async.sync.aligned.m64n" shape_and_types " {" names "}, %" #a ", %" #b ", add, 1, 1" layouts \
      ";\n"                                                                                                   \
      "}\n"                                                                                                   \
      : __VA_ARGS__                                                                                           \
      : "l"(A), "l"(B), "r"(static_cast<int>(add)), "n"(A_down), "n"(B_down))
#define PRISM_WGMMA(columns, names, a, b, adds, a_down, b_down, ...)                                         \
  if constexpr (InBytes) {                                                                                   \
    PRISM_WGMMA_OF(#columns "k32.f32.e4m3.e4m3", names, a, b, adds, "", __VA_ARGS__);                        \
  } else {                                                                                                   \
    PRISM_WGMMA_OF(#columns "k16.f32.f16.f16", names, a, b, adds, ", %" #a_down ", %" #b_down, __VA_ARGS__); \
  }

// Computes d ← A·Bᵀ + d, or A·Bᵀ alone, for 32 bytes of inner indices: 16 fp16 or 32 e4m3 numbers, which must lie along
// the rows. d is 64×Columns over the 128 threads of a warpgroup, in the first elements of the array.
template <int Columns, bool A_down, bool B_down, bool InBytes>
__device__ inline void wgmma(float (&d)[128], uint64_t A, uint64_t B, bool add) {
  if constexpr (Columns == 64) {
    PRISM_WGMMA(64, PRISM_NAMES_0, 32, 33, 34, 35, 36, PRISM_32(0));
  } else if constexpr (Columns == 128) {
    PRISM_WGMMA(128, PRISM_NAMES_0 ", " PRISM_NAMES_1, 64, 65, 66, 67, 68, PRISM_32(0), PRISM_32(32));
  } else if constexpr (Columns == 192) {
    PRISM_WGMMA(192, PRISM_NAMES_0 ", " PRISM_NAMES_1 ", " PRISM_NAMES_2, 96, 97, 98, 99, 100, PRISM_32(0),
                PRISM_32(32), PRISM_32(64));
  } else {
    static_assert(Columns == 256);
    PRISM_WGMMA(256, PRISM_NAMES_0 ", " PRISM_NAMES_1 ", " PRISM_NAMES_2 ", " PRISM_NAMES_3, 128, 129, 130, 131, 132,
                PRISM_32(0), PRISM_32(32), PRISM_32(64), PRISM_32(96));
  }
}

#undef PRISM_WGMMA
#undef PRISM_WGMMA_OF
#undef PRISM_NAMES_3
#undef PRISM_NAMES_2
#undef PRISM_NAMES_1
#undef PRISM_NAMES_0
#undef PRISM_32
#undef PRISM_8

}  // namespace prism::cuda::hopper
