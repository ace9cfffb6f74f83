// Captures a step into a CUDA graph from C++. A step allocates nothing and waits for nothing, so a bare capture of the
// stream is enough.

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "prism/cuda/device.h"
#include "tests/optim/helpers.h"

namespace prism::test {
namespace {

class Capture : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU";
  }
};

NamedTensors model(uint64_t seed) {
  NamedTensors named;
  for (const auto& shape : std::vector<std::vector<int64_t>>{{48, 32}, {48, 32}, {20, 70}, {40}}) {
    const Tensor value = random(shape, seed + named.size(), torch::kFloat32).cuda();
    named.emplace_back("w" + std::to_string(named.size()), parameter(value));
    named.back().second.mutable_grad() = random(shape, 100 + named.size(), torch::kFloat32).cuda();
  }
  return named;
}

Mixed optimizer_of(const NamedTensors& named) {
  return {named, PrismOptions(0.1).weight_decay(0.1).capturable(true), AdamWOptions(0.1).capturable(true)};
}

void set_rates(Mixed& optimizer, double lr) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(lr);
}

TEST_F(Capture, ReplaysTheEagerStepBitForBitWithItsOwnLearningRate) {
  const auto replayed = model(1), eager = copy_of(replayed);
  for (size_t i = 0; i < eager.size(); ++i) eager[i].second.mutable_grad() = replayed[i].second.grad().clone();
  Mixed captured = optimizer_of(replayed), plain = optimizer_of(eager);
  const c10::impl::VirtualGuardImpl backend(at::kCUDA);
  const c10::Stream stream = backend.getStreamFromGlobalPool(at::Device(at::kCUDA, 0));
  const c10::StreamGuard guard(stream);
  torch::cuda::synchronize();
  captured.step();
  plain.step();

  const cuda::Graph graph(stream.native_handle(), [&] { captured.step(); });
  for (const double lr : {0.1, 0.03, 0.0}) {
    set_rates(captured, lr);
    set_rates(plain, lr);
    captured.write_scalars();
    graph.launch();
    plain.step();
  }
  torch::cuda::synchronize();
  expect_equal_weights(replayed, eager);
  expect_equal_state(state_of(captured), state_of(plain));
}

TEST_F(Capture, RefusesWhatAGraphWouldFreeze) {
  const c10::impl::VirtualGuardImpl backend(at::kCUDA);
  const c10::Stream stream = backend.getStreamFromGlobalPool(at::Device(at::kCUDA, 0));
  const c10::StreamGuard guard(stream);
  const auto message_in_capture = [&](Optimizer& optimizer) {
    return message_of([&] { const cuda::Graph graph(stream.native_handle(), [&] { optimizer.step(); }); });
  };
  const auto named = model(1);
  Mixed fresh = optimizer_of(named);
  EXPECT_NE(message_in_capture(fresh).find("before you capture a graph of it"), std::string::npos);
  Mixed frozen(named, PrismOptions(0.1), AdamWOptions(0.1));
  EXPECT_NE(message_in_capture(frozen).find("needs capturable=True"), std::string::npos);
  Mixed lacking = optimizer_of(named);
  lacking.step();
  named[1].second.mutable_grad() = Tensor();
  EXPECT_NE(message_in_capture(lacking).find("'w1' has no gradient"), std::string::npos);
}

}  // namespace
}  // namespace prism::test
