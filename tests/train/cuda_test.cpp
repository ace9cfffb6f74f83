// Training on a GPU: a step replayed from a CUDA graph equals the eager step.

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "prism/optim/spectral.h"
#include "prism/train/checkpoint.h"
#include "prism/train/trainer.h"
#include "tests/train/helpers.h"
#include "tests/train/weights.h"

using namespace prism;
using train::Trainer;

namespace {

// Uses the algorithms that train.deterministic asks for.
class CudaTrainer : public testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA()) GTEST_SKIP() << "needs a GPU";
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
    at::globalContext().setDeterministicAlgorithms(true, false);
    dataset_.emplace(small_.dataset());
  }
  void TearDown() override { at::globalContext().setDeterministicAlgorithms(false, false); }

  io::Config config(std::vector<std::string> settings) const {
    settings.insert(settings.begin(), {"model.width=128", "model.heads=4", "model.mlp=192", "run.device=cuda"});
    auto config = small_.config(settings);
    train::resolve(config, dataset_->tokenizer.size());
    return config;
  }

  Trainer make(const std::vector<std::string>& settings,
               std::shared_ptr<dist::Communicator> processes = dist::one_process()) const {
    const auto complete = config(settings);
    return {complete, *dataset_, model::Qwen2(train::model_config(complete, dataset_->tokenizer.size()), 1, at::kCUDA),
            std::move(processes)};
  }

  SmallRun small_;
  std::optional<train::Dataset> dataset_;
};

void expect_equal(const Trainer& left, const Trainer& right) {
  EXPECT_TRUE(is_same(weights_and_state(left), weights_and_state(right)));
}

void expect_equal_steps(Trainer& left, Trainer& right, int64_t first, int64_t last) {
  for (int64_t step = first; step <= last; ++step) {
    const auto a = left.step(step), b = right.step(step);
    EXPECT_EQ(a.loss, b.loss) << step;
    EXPECT_EQ(a.grad_norm, b.grad_norm) << step;
    EXPECT_EQ(a.lr, b.lr) << step;
    EXPECT_EQ(train::to_json(a)["norms"], train::to_json(b)["norms"]) << step;
  }
}

TEST_F(CudaTrainer, ReplaysTheEagerStepBitForBit) {
  for (const std::vector<std::string>& settings : std::vector<std::vector<std::string>>{
           {"optimizer.name=prism"},
           {"optimizer.name=prism", "optimizer.covariance=ema", "train.accumulate=2"},
           {"optimizer.covariance=ema", "optimizer.covariance_every=3"},
           {"optimizer.name=prism", "optimizer.gamma_schedule=linear", "model.recompute=true"},
           // 32×128 and 128×192: through the Gram of the stack and directly
           {"optimizer.side=right", "model.kv_heads=1"},
           {"optimizer.name=muon", "optimizer.coefficients=minimax9"},
           {"optimizer.name=adamw"}}) {
    auto without = settings;
    without.emplace_back("train.graph=false");
    Trainer replayed = make(settings), eager = make(without);
    expect_equal_steps(replayed, eager, 1, 6);
    EXPECT_TRUE(replayed.is_graph()) << settings.front();
    EXPECT_FALSE(eager.is_graph());
    expect_equal(replayed, eager);
  }
}

TEST_F(CudaTrainer, SavesTheSameStateWithAndWithoutAGraph) {
  Trainer replayed = make({}), eager = make({"train.graph=false"});
  expect_equal_steps(replayed, eager, 1, 4);
  EXPECT_TRUE(replayed.is_graph());
  EXPECT_EQ(replayed.optimizer_state().header, eager.optimizer_state().header);
}

// One process: gradients and weights go through NCCL, from the process to itself.
TEST_F(CudaTrainer, ReplaysStepsWithNcclBitForBit) {
  const std::map<const char*, const char*> launcher = {
      {"WORLD_SIZE", "1"}, {"RANK", "0"}, {"LOCAL_RANK", "0"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "0"}};
  for (const auto& [name, value] : launcher) setenv(name, value, 1);
  const auto processes = dist::start();
  for (const auto& [name, value] : launcher) unsetenv(name);
  if (processes->transport() != "NCCL") GTEST_SKIP() << "needs a build with NCCL";
  for (const std::vector<std::string>& settings :
       std::vector<std::vector<std::string>>{{"train.exact_reduction=true", "train.accumulate=2"},
                                             {"train.exact_reduction=true", "train.accumulate=2", "run.owned=false"},
                                             {"train.exact_reduction=false"},
                                             {"train.exact_reduction=false", "run.owned=false"}}) {
    Trainer nccl = make(settings, processes), alone = make(settings);
    expect_equal_steps(nccl, alone, 1, 3);
    EXPECT_TRUE(nccl.is_graph());
    EXPECT_EQ(nccl.evaluate(), alone.evaluate());
    expect_equal_steps(nccl, alone, 4, 6);
    expect_equal(nccl, alone);
    EXPECT_EQ(nccl.optimizer_state().header, alone.optimizer_state().header);
    EXPECT_FALSE(nccl.stop_requested());
    nccl.step(7, /*stop=*/true);
    EXPECT_TRUE(nccl.stop_requested());
  }
  processes->finish();  // waits for all graphs that NCCL is part of
}

TEST_F(CudaTrainer, ReplayedNormsAreThoseOfTheTensors) {
  Trainer trainer = make({"optimizer.weight_decay=0.1", "optimizer.momentum=0.9"});
  for (int64_t step = 1; step <= 4; ++step) trainer.step(step);
  ASSERT_TRUE(trainer.is_graph());
  std::map<std::string, at::Tensor> before;
  for (const auto& [name, tensor] : trainer.model().named_parameters()) before[name] = tensor.detach().to(at::kDouble);
  const auto record = trainer.step(5);
  std::map<std::string, at::Tensor> state;
  for (const auto& [name, tensor] : trainer.optimizer().snapshot().tensors) state[name] = tensor.to(at::kDouble);
  ASSERT_EQ(record.norms.size(), 7U);
  for (const auto& [type, norms] : record.norms) {
    double G = 0, M = 0, D = 0, O = 0, W = 0;
    for (const auto& [name, tensor] : trainer.model().named_parameters()) {
      if (name.find(type + ".weight") == std::string::npos) continue;
      const auto square = [](const at::Tensor& X) { return X.square().sum().item<double>(); };
      const at::Tensor now = tensor.detach().to(at::kDouble), g = tensor.grad().to(at::kDouble);
      const at::Tensor& m = state.at("state." + name + ".momentum");
      const double scale = record.lr * scale_factor(ScaleRule::Moonlight, now.sizes());
      G += square(g), M += square(m), D += square(g - m), W += square(now);
      O += square((before.at(name) * (1 - record.lr * 0.1) - now) / scale);
    }
    const auto near = [](double measured, double square) { EXPECT_NEAR(measured, std::sqrt(square), 1e-4 * measured); };
    near(norms.G, G), near(*norms.M, M), near(*norms.D, D), near(*norms.O, O), near(norms.W, W);
  }
}

TEST_F(CudaTrainer, EvaluatingAndLookingAtSpectraBetweenStepsChangesNothing) {
  Trainer watched = make({}), alone = make({});
  for (int64_t step = 1; step <= 5; ++step) {
    const auto a = watched.step(step), b = alone.step(step);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_GT(watched.evaluate(), 0);
    EXPECT_FALSE(watched.spectra(1).empty());
    watched.release_gradients();
  }
  expect_equal(watched, alone);
}

TEST_F(CudaTrainer, LeavesNoMoreMemoryBehindTheMoreRunsAProcessMakes) {
  const auto allocated = [] {
    const auto stats = at::accelerator::getDeviceStats(0).allocated_bytes;
    return stats[static_cast<size_t>(at::CachingDeviceAllocator::StatType::AGGREGATE)].current;
  };
  const auto train = [&] {
    Trainer trainer = make({});
    for (int64_t step = 1; step <= 4; ++step) trainer.step(step);
  };
  train();
  const auto first = allocated();
  for (int i = 0; i < 3; ++i) train();
  EXPECT_EQ(allocated(), first) << "cuBLAS has a workspace for every stream it has seen";
}

TEST_F(CudaTrainer, GoesOnFromACheckpointBitForBit) {
  const std::vector<std::string> settings = {"optimizer.covariance=ema"};
  Trainer straight = make(settings);
  for (int64_t step = 1; step <= 3; ++step) straight.step(step);
  train::RunState state;
  state.step = 3;
  const train::RunFolder run{small_.folder.path() / "run"};
  train::save_checkpoint(run, straight, straight.optimizer_state(), state, 2);
  Trainer resumed = make(settings);
  ASSERT_TRUE(train::load_checkpoint(run, resumed).state);
  expect_equal_steps(straight, resumed, 4, 7);
  expect_equal(straight, resumed);
}

TEST_F(CudaTrainer, AReplayedStepThatIsNotFiniteChangesNothingAndNamesTheOperation) {
  Trainer trainer = make({});
  for (int64_t step = 1; step <= 3; ++step) trainer.step(step);
  ASSERT_TRUE(trainer.is_graph());
  const auto weight = trainer.model().named_parameters()[5].second.detach(), good = weight.clone();
  weight.view(-1)[3].fill_(std::numeric_limits<float>::quiet_NaN());
  const auto before = weights_and_state(trainer);
  const auto record = trainer.step(4);
  EXPECT_TRUE(record.skipped);
  EXPECT_EQ(record.culprit, "model.layers.0.self_attn.q_proj, sequence 1");
  EXPECT_TRUE(trainer.is_graph());
  EXPECT_TRUE(is_same(before, weights_and_state(trainer)));
  weight.copy_(good);
  EXPECT_FALSE(trainer.step(4).skipped);
  EXPECT_FALSE(is_same(before, weights_and_state(trainer)));
}

TEST_F(CudaTrainer, LookingForTheCauseOfASkippedStepChangesNothing) {
  Trainer looked = make({"train.accumulate=2"}), straight = make({"train.accumulate=2"});
  expect_equal_steps(looked, straight, 1, 3);
  const auto weight = looked.model().named_parameters()[9].second.detach(), good = weight.clone();
  weight.fill_(std::numeric_limits<float>::infinity());
  EXPECT_EQ(looked.step(4).culprit, "model.layers.0.post_attention_layernorm, sequence 1 of pass 1");
  weight.copy_(good);
  expect_equal_steps(looked, straight, 4, 6);
  expect_equal(looked, straight);
}

TEST_F(CudaTrainer, StepsThatCannotBeCapturedStillTrain) {
  for (const std::vector<std::string>& settings :
       std::vector<std::vector<std::string>>{{"optimizer.name=soap"},
                                             {"optimizer.name=prism", "optimizer.solver=exact"},
                                             {"optimizer.side=long", "optimizer.covariance=instant", "model.mlp=320"},
                                             {"optimizer.side=both"},
                                             {"optimizer.covariance=subspace", "optimizer.rank=8"}}) {
    Trainer trainer = make(settings);
    const double first = trainer.step(1).loss;
    for (int64_t step = 2; step <= 8; ++step) trainer.step(step);
    EXPECT_FALSE(trainer.is_graph()) << settings.front();
    EXPECT_LT(trainer.step(9).loss, first);
  }
}

}  // namespace
