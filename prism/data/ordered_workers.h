#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace prism::data {

// Processes items in several threads and returns them in the order of submission. One thread submits and takes. At most
// `depth` items are in flight, so memory is bounded however fast either side is.
template <typename Item>
class OrderedWorkers {
 public:
  OrderedWorkers(int threads, size_t depth, std::function<void(Item&)> work) : depth_(depth), work_(std::move(work)) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { run(); });
    }
  }
  OrderedWorkers(const OrderedWorkers&) = delete;
  OrderedWorkers& operator=(const OrderedWorkers&) = delete;
  ~OrderedWorkers() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  bool empty() const { return slots_.empty(); }
  bool full() const { return slots_.size() >= depth_; }

  void submit(Item item) {
    auto slot = std::make_unique<Slot>(std::move(item));
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(slot.get());
    }
    slots_.push_back(std::move(slot));
    changed_.notify_all();
  }

  // Waits for the oldest item and returns it. Rethrows an exception from processing it.
  Item take() {
    const std::unique_ptr<Slot> slot = std::move(slots_.front());
    slots_.pop_front();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return slot->done; });
    if (slot->failure) std::rethrow_exception(slot->failure);
    return std::move(slot->item);
  }

 private:
  struct Slot {
    explicit Slot(Item given) : item(std::move(given)) {}
    Item item;
    bool done = false;
    std::exception_ptr failure;
  };

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      Slot* slot = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      try {
        work_(slot->item);
      } catch (...) {
        slot->failure = std::current_exception();
      }
      lock.lock();
      slot->done = true;
      changed_.notify_all();
    }
  }

  const size_t depth_;
  const std::function<void(Item&)> work_;
  std::deque<std::unique_ptr<Slot>> slots_;  // in order of submission; used by the owner only
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Slot*> waiting_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace prism::data
