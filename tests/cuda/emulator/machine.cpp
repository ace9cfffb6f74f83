#include "tests/cuda/emulator/machine.h"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <utility>

namespace prism::cuda::emulator {
namespace {

constexpr size_t kStackBytes = 192 << 10;
constexpr size_t kSharedAlignment = 1024;

struct Machine {
  std::mt19937 random{1};
  Index grid;
  const std::function<void()>* kernel = nullptr;
  Thread* current = nullptr;
  jmp_buf scheduler{};
  std::vector<Thread*> ready, polling;
  std::vector<std::function<void()>> actions, late_actions;
  std::vector<std::unique_ptr<uint8_t[]>> stacks;
};

Machine& machine() {
  static Machine the_machine;
  return the_machine;
}

// Removes an element at random.
template <class T>
T draw(std::vector<T>& list) {
  std::swap(list[random_number() % list.size()], list.back());
  T drawn = std::move(list.back());
  list.pop_back();
  return drawn;
}

// Jumps save nothing with the system, which makes them ten times as fast as swapcontext. _setjmp returns a second time
// when somebody jumps there.
void suspend() {
  if (_setjmp(current().place) == 0) _longjmp(machine().scheduler, 1);
}
void resume(Thread* thread) {
  machine().current = thread;
  if (_setjmp(machine().scheduler) != 0) return;
  Thread& next = current();
  if (next.has_started) _longjmp(next.place, 1);
  next.has_started = true;
  setcontext(&next.start);
}

void start() {
  (*machine().kernel)();
  current().is_done = true;
  suspend();  // for good
}

void prepare(Thread& thread, uint8_t* stack) {
  getcontext(&thread.start);
  thread.start.uc_stack.ss_sp = stack;
  thread.start.uc_stack.ss_size = kStackBytes;
  makecontext(&thread.start, emulator::start, 0);
}

// Runs an action. Of the late ones it takes the last, so that some come very late.
bool run_action() {
  Machine& m = machine();
  if (!m.actions.empty()) {
    draw(m.actions)();
    return true;
  }
  if (m.late_actions.empty()) return false;
  const auto action = std::move(m.late_actions.back());
  m.late_actions.pop_back();
  action();
  return true;
}

void run_all(std::vector<Thread>& threads) {
  Machine& m = machine();
  constexpr int kMostRounds = 1000;  // in which all threads only poll
  for (int round = 0; round < kMostRounds;) {
    if (!m.ready.empty() && (m.actions.empty() || random_number() % 64 != 0)) {
      resume(draw(m.ready));
      continue;
    }
    const bool has_acted = run_action();
    if (!m.ready.empty()) continue;
    if (!has_acted && m.polling.empty()) break;
    round = has_acted ? 0 : round + 1;
    m.ready.swap(m.polling);
  }
  for (const auto& thread : threads) {
    if (thread.is_done) continue;
    fprintf(stderr, "emulator: block %u, thread %u waits forever\n", thread.block_index.x, thread.index.x);
    abort();
  }
}

}  // namespace

Thread& current() { return *machine().current; }
const Index& grid() { return machine().grid; }
unsigned random_number() { return static_cast<unsigned>(machine().random()); }

void yield() {
  if (random_number() % 4 != 0) return;
  machine().ready.push_back(&current());
  suspend();
}

// One of eight happens only when all threads wait: those that go on without it get far.
void later(std::function<void()> action) {
  auto& list = random_number() % 8 == 0 ? machine().late_actions : machine().actions;
  list.push_back(std::move(action));
}

void poll() {
  machine().polling.push_back(&current());
  suspend();
}

int add(int* counter, int x) {
  yield();
  return std::exchange(*counter, *counter + x);
}

void fail(const char* what) {
  fprintf(stderr, "emulator: %s\n", what);
  abort();
}

uint64_t shared_offset(const void* pointer) {
  const auto* byte = static_cast<const uint8_t*>(pointer);
  const Block& block = *current().block;
  if (byte < block.shared || byte >= block.storage.data() + block.storage.size()) fail("address outside shared memory");
  return static_cast<uint64_t>(byte - block.shared);
}

void Sleepers::sleep() {
  threads_.push_back(&current());
  suspend();
}
void Sleepers::wake() {
  auto& ready = machine().ready;
  ready.insert(ready.end(), threads_.begin(), threads_.end());
  threads_.clear();
}

bool Meeting::meet(int size, bool mine) {
  any_ |= mine;
  if (++arrived_ == size) {
    arrived_ = 0;
    result_ = std::exchange(any_, false);
    ++round_;
    sleepers_.wake();
    return result_;
  }
  const uint64_t round = round_;
  while (round_ == round) sleepers_.sleep();
  return result_;
}

void Barrier::arrive(int64_t expected_bytes) {
  bytes_ += expected_bytes;
  if (--pending_ < 0) fail("too many arrivals at a barrier");
  settle();
}
void Barrier::complete(int64_t bytes) {
  bytes_ -= bytes;
  settle();
}
void Barrier::settle() {
  if (pending_ != 0 || bytes_ != 0) return;
  pending_ = arrivals_;
  phase_ ^= 1;
  sleepers_.wake();
}
void Barrier::wait(uint32_t parity) {
  while (!has_left(parity)) sleepers_.sleep();
}

Barrier& Block::barrier(uint64_t offset) {
  const auto found = barriers.find(offset);
  if (found == barriers.end()) fail("a barrier was not initialized");
  return found->second;
}

void run(int blocks, int threads, size_t shared_bytes, const std::function<void()>& kernel) {
  Machine& m = machine();
  m.grid = {static_cast<unsigned>(blocks), 1, 1};
  m.kernel = &kernel;
  const auto count = [](int x) { return static_cast<size_t>(x); };
  std::vector<Block> all_blocks(count(blocks));
  for (size_t b = 0; b < all_blocks.size(); ++b) {
    Block& block = all_blocks[b];
    block.rank = static_cast<int>(b) % kClusterBlocks;
    for (size_t i = 0; i < kClusterBlocks; ++i) block.cluster[i] = &all_blocks[b - b % kClusterBlocks + i];
    block.storage.assign(shared_bytes + kSharedAlignment, 0xff);
    block.shared = block.storage.data();
    block.shared +=
        (kSharedAlignment - reinterpret_cast<uintptr_t>(block.shared) % kSharedAlignment) % kSharedAlignment;
    block.warps.resize(count(threads / kWarp));
    block.groups.resize(count(threads / kGroup));
  }
  std::vector<Thread> all_threads(count(blocks) * count(threads));
  for (size_t i = 0; i < all_threads.size(); ++i) {
    if (m.stacks.size() == i) m.stacks.emplace_back(new uint8_t[kStackBytes]);
    prepare(all_threads[i], m.stacks[i].get());
    all_threads[i].block = &all_blocks[i / count(threads)];
    all_threads[i].block_index.x = static_cast<unsigned>(i / count(threads));
    all_threads[i].index.x = static_cast<unsigned>(i % count(threads));
    m.ready.push_back(&all_threads[i]);
  }
  run_all(all_threads);
}

}  // namespace prism::cuda::emulator
