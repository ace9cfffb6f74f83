#pragma once

// A GPU for tests without one: runs the blocks of a kernel on one thread of a CPU, all of them at once. Each of their
// threads is a fiber that runs until it waits. Which one runs next, and when an asynchronous copy happens, is random, so a
// missing wait shows in the result, and threads that wait for each other are reported. It shows nothing about speed,
// and nothing about the order in which memory accesses of different threads become visible.

#include <setjmp.h>
#include <ucontext.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace prism::cuda::emulator {

constexpr int kWarp = 32, kGroup = 128, kClusterBlocks = 2;

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

struct Thread;

// Threads that wait for a change.
class Sleepers {
 public:
  void sleep();  // suspends the current thread; it must look again at what it waits for when it wakes
  void wake();

 private:
  std::vector<Thread*> threads_;
};

// A place where a number of threads wait for each other, again and again.
class Meeting {
 public:
  // Waits for the last of `size` threads. Returns true if `mine` is true for any of them.
  bool meet(int size, bool mine = false);

 private:
  int arrived_ = 0;
  uint64_t round_ = 0;
  bool any_ = false, result_ = false;
  Sleepers sleepers_;
};

// A barrier in shared memory that counts arrivals and bytes.
class Barrier {
 public:
  explicit Barrier(int arrivals) : arrivals_(arrivals), pending_(arrivals) {}
  void arrive(int64_t expected_bytes = 0);
  void complete(int64_t bytes);
  bool has_left(uint32_t parity) const { return phase_ != parity; }
  void wait(uint32_t parity);

 private:
  void settle();
  int arrivals_, pending_;
  int64_t bytes_ = 0;
  uint32_t phase_ = 0;
  Sleepers sleepers_;
};

// A copy from shared memory that the copy engine makes later.
struct Store {
  bool was_read = false, was_written = false;
};

// What the lanes of a warp exchange.
struct Warp {
  Meeting meeting;
  std::array<uint64_t, kWarp> values{};
  std::array<std::array<uint32_t, 4>, kWarp> words{};
};

// One product of a warpgroup: d ← A·Bᵀ (+ d), of matrices in shared memory.
struct GroupProduct {
  std::array<float*, kGroup> d{};
  uint64_t A = 0, B = 0;
  bool adds = false, A_down = false, B_down = false, in_bytes = false;
  int columns = 0;
};

struct Group {
  Meeting meeting;
  std::array<float*, kGroup> d{};
  std::vector<GroupProduct> begun;
  std::deque<std::vector<GroupProduct>> committed;
};

struct Block {
  int rank = 0;  // in its cluster
  std::array<Block*, kClusterBlocks> cluster{};
  std::vector<uint8_t> storage;
  uint8_t* shared = nullptr;             // aligned as dynamic shared memory
  std::map<uint64_t, Barrier> barriers;  // by offset in shared memory
  std::array<Meeting, 16> named;
  Meeting of_cluster;  // in the first block of the cluster
  std::vector<Warp> warps;
  std::vector<Group> groups;

  Block& peer(uint32_t of) const { return *cluster[of]; }
  Barrier& barrier(uint64_t offset);
};

struct Thread {
  Index index, block_index;
  Block* block = nullptr;
  std::vector<std::shared_ptr<Store>> open_stores, stores;  // the latter committed
  Sleepers of_stores;
  ucontext_t start{};
  jmp_buf place{};  // where it waits
  bool has_started = false, is_done = false;

  Warp& warp() const { return block->warps[index.x / kWarp]; }
  Group& group() const { return block->groups[index.x / kGroup]; }
  int lane() const { return static_cast<int>(index.x % kWarp); }
};

Thread& current();
const Index& grid();
unsigned random_number();
void yield();                              // now and then lets others run
void poll();                               // lets others run before it looks again
void later(std::function<void()> action);  // at a random time
int add(int* counter, int x);              // returns the old value
[[noreturn]] void fail(const char* what);

// The offset of an address in the shared memory of the current block.
uint64_t shared_offset(const void* pointer);

// Runs a kernel in clusters of two blocks.
void run(int blocks, int threads, size_t shared_bytes, const std::function<void()>& kernel);

}  // namespace prism::cuda::emulator
