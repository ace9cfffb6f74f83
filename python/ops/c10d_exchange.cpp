#include "python/ops/c10d_exchange.h"

#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <utility>

namespace prism {
namespace {

class C10dExchange : public Exchange {
 public:
  explicit C10dExchange(c10::intrusive_ptr<c10d::ProcessGroup> group) : group_(std::move(group)) {}

  int64_t rank() const override { return group_->getRank(); }
  int64_t size() const override { return group_->getSize(); }

  void maximum(Tensor& values) override {
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MAX;
    std::vector<Tensor> list = {values};
    group_->allreduce(list, options)->wait();
  }

  void broadcast(Tensor& values, int64_t root) override {
    c10d::BroadcastOptions options;
    options.rootRank = root;
    std::vector<Tensor> list = {values};
    group_->broadcast(list, options)->wait();
  }

 protected:
  Pending start(Tensor input, std::vector<int64_t> sent, std::vector<int64_t> received) override {
    Tensor output = at::empty({c10::sum_integers(received)}, input.options());
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // its new name is not in torch 2.11
    const auto work = group_->alltoall_base(output, input, received, sent);
#pragma GCC diagnostic pop
    return {[work, input, output] {  // the input must live until the work is done
      work->wait();
      return output;
    }};
  }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace

std::shared_ptr<Exchange> c10d_exchange(const std::string& group) {
  return std::make_shared<C10dExchange>(c10d::resolve_process_group(group));
}

}  // namespace prism
