#pragma once

#include <barrier>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "prism/dist/communicator.h"

namespace prism::dist {

// Ranks that are threads of this process, so that tests need no launcher. Sums add the ranks in order.
class Threads {
 public:
  explicit Threads(int64_t size)
      : size_(size), meeting_(size), values_(static_cast<size_t>(size)), counts_(values_.size()) {}

  // Runs `work` on all ranks and throws the first exception of any.
  static void run(int64_t size, const std::function<void(const std::shared_ptr<Communicator>&)>& work) {
    Threads hub(size);
    std::vector<std::exception_ptr> faults(static_cast<size_t>(size));
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          work(std::make_shared<Rank>(hub, rank));
        } catch (...) {
          faults[static_cast<size_t>(rank)] = std::current_exception();
          hub.meeting_.arrive_and_drop();
        }
      });
    }
    for (auto& thread : threads) thread.join();
    for (const auto& fault : faults) {
      if (fault) std::rethrow_exception(fault);
    }
  }

 private:
  class Rank : public Communicator {
   public:
    Rank(Threads& hub, int64_t rank) : hub_(hub), rank_(rank) {}
    int64_t rank() const override { return rank_; }
    int64_t size() const override { return hub_.size_; }
    std::string transport() const override { return "threads"; }
    at::Device device() const override { return at::kCPU; }
    void finish() override {}
    void abort(int status) override { std::_Exit(status); }

    Pending begin_sum(const Tensor& values) override {
      reduce(values, [](const Tensor& a, const Tensor& b) { return a + b; });
      return {[values] { return values; }};
    }
    void maximum(Tensor& values) override {
      reduce(values, [](const Tensor& a, const Tensor& b) { return at::maximum(a, b); });
    }
    void broadcast(Tensor& values, int64_t root) override {
      const auto all = meet(values);
      values.copy_(all[static_cast<size_t>(root)]);
      hub_.meeting_.arrive_and_wait();
    }
    Pending begin_all_gather(const Tensor& values, const std::vector<int64_t>& counts) override {
      const auto all = meet(values.clone());
      int64_t begin = 0;
      for (size_t r = 0; r < counts.size(); ++r) {
        values.narrow(0, begin, counts[r]).copy_(all[r].narrow(0, begin, counts[r]));
        begin += counts[r];
      }
      hub_.meeting_.arrive_and_wait();
      return {[values] { return values; }};
    }

   protected:
    Pending start(Tensor input, std::vector<int64_t> sent, std::vector<int64_t> received) override {
      hub_.counts_[static_cast<size_t>(rank_)] = sent;
      const auto all = meet(input);
      std::vector<Tensor> parts;
      for (size_t r = 0; r < all.size(); ++r) {
        const auto& counts = hub_.counts_[r];
        const int64_t begin = std::accumulate(counts.begin(), counts.begin() + rank_, int64_t{0});
        TORCH_CHECK(counts[static_cast<size_t>(rank_)] == received[r], "rank ", r, " sent ", counts[rank_],
                    " elements");
        parts.push_back(all[r].narrow(0, begin, received[r]));
      }
      const Tensor output = at::cat(parts);
      hub_.meeting_.arrive_and_wait();
      return {[output] { return output; }};
    }

   private:
    std::vector<Tensor> meet(const Tensor& values) {
      hub_.values_[static_cast<size_t>(rank_)] = values;
      hub_.meeting_.arrive_and_wait();
      auto all = hub_.values_;
      hub_.meeting_.arrive_and_wait();
      return all;
    }
    void reduce(const Tensor& values, const std::function<Tensor(const Tensor&, const Tensor&)>& join) {
      const auto all = meet(values.clone());
      Tensor result = all[0];
      for (size_t r = 1; r < all.size(); ++r) result = join(result, all[r]);
      values.copy_(result);
      hub_.meeting_.arrive_and_wait();
    }

    Threads& hub_;
    int64_t rank_;
  };

  int64_t size_;
  std::barrier<> meeting_;
  std::vector<Tensor> values_;
  std::vector<std::vector<int64_t>> counts_;
};

}  // namespace prism::dist
