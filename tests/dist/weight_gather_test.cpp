#include "prism/dist/weight_gather.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/dist/threads.h"

namespace prism::dist {
namespace {

// Three ranks; parameter 2 is cut between two of them.
const std::vector<Part> kParts = {{0, 0, 35, 2}, {1, 0, 3, 0}, {2, 0, 96, 0}, {2, 96, 160, 2}, {3, 0, 1, 1}};
const std::vector<size_t> kOrder = {3, 2, 1, 0};

std::vector<Tensor> filled(double value) {
  std::vector<Tensor> list;
  for (const auto& shape : std::vector<std::vector<int64_t>>{{7, 5}, {3}, {16, 16}, {1}})
    list.push_back(torch::full(shape, value).set_requires_grad(true));
  return list;
}

void expect_weights_of_owners(const std::vector<Tensor>& parameters, double more = 0) {
  for (const auto& part : kParts) {
    TORCH_CHECK(part.of(parameters[part.parameter]).eq(static_cast<double>(part.owner) + more).all().item<bool>(),
                "parameter ", part.parameter);
  }
}

TEST(WeightGather, SendsWhatEachProcessHasStepped) {
  for (const int64_t elements : {1, 40, 1000}) {
    Threads::run(3, [&](const std::shared_ptr<Communicator>& all) {
      auto parameters = filled(static_cast<double>(all->rank()));
      const auto stepped = stepped_by(all->rank(), parameters, kParts);
      WeightGather weights(all, parameters, kParts, stepped, kOrder, elements);
      weights.finish();  // a skipped step: nothing was reported
      expect_weights_of_owners(parameters);
      torch::NoGradGuard no_grad;
      for (const size_t p : kOrder) {
        if (!stepped[p].defined()) continue;
        stepped[p].add_(10);
        weights.written(stepped[p]);
      }
      weights.finish();
      expect_weights_of_owners(parameters, 10);
    });
  }
}

// One process, so that nobody waits: a bucket leaves when the last of its tensors is written, in order.
TEST(WeightGather, BucketsLeaveWhenTheirWeightsAreWritten) {
  class Counting : public Communicator {
   public:
    int64_t rank() const override { return 0; }
    int64_t size() const override { return 1; }
    std::string transport() const override { return "counting"; }
    at::Device device() const override { return at::kCPU; }
    void maximum(Tensor& /*values*/) override {}
    Pending begin_sum(const Tensor& values) override {
      return {[values] { return values; }};
    }
    void broadcast(Tensor& /*values*/, int64_t /*root*/) override {}
    Pending begin_all_gather(const Tensor& values, const std::vector<int64_t>& /*counts*/) override {
      sizes.push_back(values.numel());
      return {[values] { return values; }};
    }
    void finish() override {}
    void abort(int status) override { std::_Exit(status); }
    std::vector<int64_t> sizes;

   protected:
    Pending start(Tensor input, std::vector<int64_t> /*sent*/, std::vector<int64_t> /*received*/) override {
      return {[input] { return input; }};
    }
  };
  const auto all = std::make_shared<Counting>();
  const auto parameters = filled(0);
  std::vector<Part> parts;
  for (size_t p = 0; p < parameters.size(); ++p) parts.push_back({p, 0, parameters[p].numel(), 0});
  WeightGather weights(all, parameters, parts, parameters, kOrder, /*bucket_elements=*/30);
  EXPECT_EQ(weights.buckets(), 2);  // parameters 3 and 2, then 1 and 0
  const std::vector<int64_t> first = {16 + 256}, both = {16 + 256, 16 + 48};
  weights.written(parameters[0]);
  weights.written(parameters[3]);
  EXPECT_TRUE(all->sizes.empty());
  weights.written(parameters[2]);
  EXPECT_EQ(all->sizes, first);
  weights.written(parameters[1]);
  EXPECT_EQ(all->sizes, both);
  weights.finish();
  EXPECT_EQ(all->sizes, both);
}

}  // namespace
}  // namespace prism::dist
