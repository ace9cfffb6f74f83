#pragma once

#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "prism/optim/exchange.h"

namespace prism {

// An exchange through torch's distributed library. `Group` is c10d::ProcessGroup or one of its backends; `Base` is
// Exchange or a class derived from it.
template <class Group, class Base = Exchange>
class C10dExchange : public Base {
 public:
  using typename Base::Pending;

  explicit C10dExchange(c10::intrusive_ptr<Group> group) : group_(std::move(group)) {}

  int64_t rank() const override { return group_->getRank(); }
  int64_t size() const override { return group_->getSize(); }
  void maximum(Tensor& values) override { begin_reduction(values, c10d::ReduceOp::MAX).wait(); }
  void broadcast(Tensor& values, int64_t root) override { begin_broadcast(values, root).wait(); }

 protected:
  Pending start(Tensor input, std::vector<int64_t> sent, std::vector<int64_t> received) override {
    Tensor output = at::empty({c10::sum_integers(received)}, input.options());
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // its new name is not in torch 2.11
    const auto work = group_->alltoall_base(output, input, received, sent);
#pragma GCC diagnostic pop
    return pending(work, output, input);
  }

  Pending begin_reduction(const Tensor& values, c10d::ReduceOp::RedOpType operation) {
    c10d::AllreduceOptions options;
    options.reduceOp = operation;
    std::vector<Tensor> list = {values};
    return pending(group_->allreduce(list, options), values);
  }

  Pending begin_broadcast(const Tensor& values, int64_t root) {
    if (values.numel() == 0) return {[values] { return values; }};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    std::vector<Tensor> list = {values};
    return pending(group_->broadcast(list, options), values);
  }

  Group& group() { return *group_; }

 private:
  // On a GPU the work runs on the group's own stream, after what the current stream has been given so far. `wait` makes
  // the current stream wait for it, not the host. `input` must live until then.
  static Pending pending(const c10::intrusive_ptr<c10d::Work>& work, const Tensor& output, const Tensor& input = {}) {
    return {[work, output, input] {
      work->wait();
      return output;
    }};
  }

  c10::intrusive_ptr<Group> group_;
};

}  // namespace prism
