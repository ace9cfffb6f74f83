#include "prism/train/trainer.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cmath>
#include <limits>
#include <map>

#include "prism/optim/spectral.h"
#include "prism/train/checkpoint.h"
#include "prism/train/processes.h"
#include "prism/train/run.h"
#include "tests/dist/threads.h"
#include "tests/train/helpers.h"
#include "tests/train/weights.h"

using namespace prism;
using train::Trainer;

namespace {

io::Config completed(io::Config config, const train::Dataset& dataset) {
  train::resolve(config, dataset.tokenizer.size());
  return config;
}

Trainer make_trainer(const io::Config& config, const train::Dataset& dataset) {
  return {config, dataset, model::Qwen2(train::model_config(config, dataset.tokenizer.size()), 1)};
}

}  // namespace

class TrainerTest : public testing::Test {
 protected:
  SmallRun small_;
  train::Dataset dataset_ = small_.dataset();
};

TEST_F(TrainerTest, SharesMatricesAsAWholeAndCutsEmbeddingsIntoRanges) {
  const auto config = completed(small_.config(), dataset_);
  const model::Qwen2 model(train::model_config(config, dataset_.tokenizer.size()), 1);
  dist::Threads::run(4, [&](const std::shared_ptr<dist::Communicator>& all) {
    std::vector<int64_t> elements(model.named_parameters().size(), 0), count(elements.size(), 0);
    for (const auto& part : train::parts(config, model.named_parameters(), *all)) {
      TORCH_CHECK(part.begin == elements[part.parameter] && part.owner < 4);
      elements[part.parameter] += part.size;
      ++count[part.parameter];
    }
    for (size_t p = 0; p < elements.size(); ++p) {
      const auto& [name, tensor] = model.named_parameters()[p];
      TORCH_CHECK(elements[p] == tensor.numel(), name);
      TORCH_CHECK(count[p] == (name.find("embed") != std::string::npos ? 4 : 1), name, ": ", count[p]);
    }
  });
}

TEST_F(TrainerTest, FollowsTheScheduleForBothRates) {
  auto trainer =
      make_trainer(completed(small_.config({"optimizer.lr=0.1", "optimizer.aux_lr=0.01"}), dataset_), dataset_);
  EXPECT_DOUBLE_EQ(trainer.step(1).lr, 0.05);
  const auto peak = trainer.step(2);
  EXPECT_DOUBLE_EQ(peak.lr, 0.1);
  EXPECT_DOUBLE_EQ(peak.aux_lr, 0.01);
  EXPECT_DOUBLE_EQ(trainer.step(12).lr, 0.01);
}

// Compares with norms over all layers, computed from copies in float64.
TEST_F(TrainerTest, RecordsTheNormsOfEachTypeOfMatrices) {
  const std::map<std::string, std::string> cases = {{"prism", "optimizer.gamma=0.5"},
                                                    {"muon", "optimizer.bias_correction=true"},
                                                    {"tikhonovmuon", "optimizer.state_dtype=float64"},
                                                    {"adamw", "optimizer.weight_decay=0.2"}};
  for (const auto& [name, setting] : cases) {
    const auto config = completed(
        small_.config({"optimizer.name=" + name, setting, "optimizer.weight_decay=0.1", "train.clip=0.5"}), dataset_);
    auto trainer = make_trainer(config, dataset_);
    trainer.step(1);
    std::map<std::string, at::Tensor> before;
    for (const auto& [key, tensor] : trainer.optimizer().snapshot().tensors) before[key] = tensor.to(at::kDouble);
    for (const auto& [key, tensor] : trainer.model().named_parameters()) before[key] = tensor.detach().to(at::kDouble);
    const auto record = trainer.step(2);
    const auto options = train::optimizer_options(config).matrices;
    const auto momentum = options->momentum_rule();

    std::map<std::string, std::map<std::string, double>> squares;
    for (const auto& [key, tensor] : trainer.model().named_parameters()) {
      const auto end = key.find("_proj.weight");
      if (end == std::string::npos) continue;
      auto& type = squares[key.substr(key.rfind('.', end) + 1, end - key.rfind('.', end) - 1) + "_proj"];
      const at::Tensor W = tensor.detach().to(at::kDouble), G = tensor.grad().to(at::kDouble);
      const auto add = [&](const char* quantity, const at::Tensor& X) {
        type[quantity] += X.square().sum().item<double>();
      };
      add("G", G);
      add("W", W);
      // The rule's own update, from the state before the step.
      State state;
      for (const auto& field : options->fields(W.sizes()))
        state.add(field.name, before.at("state." + key + "." + field.name).clone().unsqueeze(0));
      const at::Tensor U = options->direction(options->operands(G.unsqueeze(0), state), state)[0];
      add("O", momentum ? U / scale_factor(momentum->scale, W.sizes()) : U);
      if (!momentum) continue;
      at::Tensor M = before.at("state." + key + ".momentum") * 0.95 + G * 0.05;
      if (momentum->bias_correction) M = M / (1 - 0.95 * 0.95);
      add("M", M);
      add("D", G - M);
    }
    EXPECT_EQ(squares.size(), 7U);
    const auto line = train::to_json(record).at("norms");
    ASSERT_EQ(line.size(), squares.size()) << line;
    for (const auto& [type, quantities] : squares) {
      ASSERT_EQ(line.at(type).size(), quantities.size()) << name << line;
      for (const auto& [quantity, square] : quantities) {
        const double tolerance = quantity == "O" ? 2e-4 : 2e-5;  // Newton-Schulz in float32
        EXPECT_NEAR(line[type][quantity].get<double>(), std::sqrt(square), tolerance * std::sqrt(square))
            << name << " " << type << " " << quantity;
      }
    }
  }
}

TEST_F(TrainerTest, RecordsNoNormsOfASkippedStepOrWithoutTheKey) {
  auto trainer = make_trainer(completed(small_.config({"metrics.norms=false"}), dataset_), dataset_);
  EXPECT_FALSE(train::to_json(trainer.step(1)).contains("norms"));
  auto other = make_trainer(completed(small_.config(), dataset_), dataset_);
  EXPECT_TRUE(train::to_json(other.step(1)).contains("norms"));
  const at::NoGradGuard no_grad;
  other.model().named_parameters()[5].second.view(-1)[3].fill_(std::numeric_limits<float>::quiet_NaN());
  const at::AutoGradMode enabled(true);
  EXPECT_FALSE(train::to_json(other.step(2)).contains("norms"));
}

TEST_F(TrainerTest, AStepThatIsNotFiniteChangesNothingAndNamesTheOperation) {
  auto trainer = make_trainer(completed(small_.config(), dataset_), dataset_);
  trainer.step(1);
  const auto weight = trainer.model().named_parameters()[5].second.detach();  // model.layers.0.self_attn.q_proj.bias
  const auto good = weight.clone();
  weight.view(-1)[3].fill_(std::numeric_limits<float>::quiet_NaN());
  const auto before = weights_and_state(trainer);
  const auto record = trainer.step(2);
  EXPECT_TRUE(record.skipped);
  EXPECT_EQ(record.culprit, "model.layers.0.self_attn.q_proj, sequence 1");
  EXPECT_TRUE(is_same(before, weights_and_state(trainer)));
  weight.copy_(good);
  EXPECT_FALSE(trainer.step(2).skipped);
  EXPECT_FALSE(is_same(before, weights_and_state(trainer)));
}

TEST_F(TrainerTest, NamesTheOperationOfEveryWeightThatIsNotFinite) {
  const auto config = completed(small_.config({"model.tied=false", "train.accumulate=2"}), dataset_);
  auto trainer = make_trainer(config, dataset_);
  for (const double value : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    for (const auto& [name, weight] : trainer.model().named_parameters()) {
      const auto good = weight.detach().clone();
      {
        const at::NoGradGuard no_grad;
        weight.fill_(value);
      }
      const auto module = name.substr(0, name.rfind('.'));  // without ".weight" or ".bias"
      EXPECT_EQ(trainer.step(1).culprit, module + ", sequence 1 of pass 1") << name;
      const at::NoGradGuard no_grad;
      weight.copy_(good);
    }
  }
  EXPECT_EQ(trainer.step(1).culprit, "");
}

TEST_F(TrainerTest, NamesTheSequenceAndThePassOfTheBatch) {
  const auto config = completed(small_.config({"model.tied=false", "train.accumulate=2"}), dataset_);
  auto stepper = train::Stepper(config, model::Qwen2(train::model_config(config, dataset_.tokenizer.size()), 1));
  std::vector<int64_t> tokens(static_cast<size_t>(4 * 17), 7);
  tokens[3 * 17 + 5] = 9;  // the second sequence of the second pass
  {
    const at::NoGradGuard no_grad;
    stepper.model().named_parameters()[0].second[9].fill_(std::nan(""));
  }
  stepper.launch(tokens, 1);
  EXPECT_EQ(stepper.finish().culprit, "model.embed_tokens, sequence 2 of pass 2");
}

TEST_F(TrainerTest, NamesAnActivationThatOverflows) {
  auto trainer = make_trainer(completed(small_.config(), dataset_), dataset_);
  {
    const at::NoGradGuard no_grad;
    for (const auto& [name, weight] : trainer.model().named_parameters()) {
      if (name == "model.layers.1.mlp.gate_proj.weight" || name == "model.layers.1.mlp.up_proj.weight")
        weight.fill_(1e25);
    }
  }
  EXPECT_EQ(trainer.step(1).culprit, "model.layers.1.mlp.act_fn, sequence 1");
}

// The forward pass is finite, since the values are 0: n = 1e37, v = 0 · n and Wo v = 0. In the backward pass
// dWv = dvᵀ n overflows.
TEST_F(TrainerTest, NamesTheFirstGradientOfAFaultInTheBackwardPassAlone) {
  auto trainer = make_trainer(completed(small_.config(), dataset_), dataset_);
  {
    const at::NoGradGuard no_grad;
    for (const auto& [name, weight] : trainer.model().named_parameters()) {
      if (name == "model.layers.1.input_layernorm.weight") weight.fill_(1e37);
      if (name.starts_with("model.layers.1.self_attn.") && name.ends_with("weight")) weight.zero_();
      if (name == "model.layers.1.self_attn.o_proj.weight") weight.fill_(1e12);
    }
  }
  const auto record = trainer.step(1);
  EXPECT_TRUE(record.skipped);
  EXPECT_TRUE(std::isfinite(record.loss));
  EXPECT_EQ(record.culprit, "the gradient of model.layers.1.self_attn.v_proj.weight");
}

TEST_F(TrainerTest, EvaluatesTheSameHoweverTheSequencesAreGrouped) {
  const auto one = make_trainer(completed(small_.config({"train.batch=1"}), dataset_), dataset_).evaluate();
  const auto four = make_trainer(completed(small_.config({"train.batch=4"}), dataset_), dataset_).evaluate();
  EXPECT_NEAR(one, four, 1e-5);
}

TEST_F(TrainerTest, GoesOnFromACheckpointBitForBit) {
  const auto config = completed(small_.config({"optimizer.covariance=ema"}), dataset_);
  auto straight = make_trainer(config, dataset_);
  for (int64_t step = 1; step <= 3; ++step) straight.step(step);
  train::RunState state;
  state.step = 3;
  train::save_checkpoint({small_.folder.path() / "run"}, straight, straight.optimizer_state(), state, 2);

  auto resumed = make_trainer(config, dataset_);
  const auto loaded = train::load_checkpoint({small_.folder.path() / "run"}, resumed);
  ASSERT_TRUE(loaded.state);
  EXPECT_EQ(loaded.state->step, 3);
  for (int64_t step = 4; step <= 6; ++step) {
    const auto left = straight.step(step), right = resumed.step(step);
    EXPECT_EQ(left.loss, right.loss);
    EXPECT_EQ(left.grad_norm, right.grad_norm);
    EXPECT_EQ(left.batch, right.batch);
  }
  EXPECT_TRUE(is_same(weights_and_state(straight), weights_and_state(resumed)));
}

TEST_F(TrainerTest, ClipsTheGradientToTheNormThatIsAsked) {
  auto trainer = make_trainer(completed(small_.config({"train.clip=0.001"}), dataset_), dataset_);
  const auto record = trainer.step(1);
  EXPECT_GT(record.grad_norm, 0.01);
  double squares = 0;
  for (const auto& [name, tensor] : trainer.model().named_parameters())
    squares += std::pow(tensor.grad().norm().item<double>(), 2);
  EXPECT_NEAR(std::sqrt(squares), 0.001, 1e-6);
}

TEST_F(TrainerTest, WeighsTheHiddenMatricesAlone) {
  const auto trainer = make_trainer(completed(small_.config(), dataset_), dataset_);
  double squares = 0;
  for (const auto& [name, tensor] : trainer.model().named_parameters()) {
    if (name.find("_proj.weight") != std::string::npos) squares += std::pow(tensor.norm().item<double>(), 2);
  }
  EXPECT_NEAR(trainer.weight_norm(), std::sqrt(squares), 1e-6 * std::sqrt(squares));
}

TEST_F(TrainerTest, ARunKeepsLittleOfEachStep) {
  const auto in_use = [] {
    const auto heap = mallinfo2();
    return static_cast<int64_t>(heap.uordblks + heap.hblkhd);
  };
  if (in_use() == 0) GTEST_SKIP() << "the sanitizer's malloc does not count";
  int64_t at_100 = 0, at_400 = 0;
  train::RunOptions options;
  options.progress = [&](const train::RunProgress& progress) {
    if (progress.step == 100) at_100 = in_use();
    if (progress.step == 400) at_400 = in_use();
  };
  train::run(small_.config({"train.steps=401", "train.eval_every=20", "checkpoint.every=10"}), dataset_, options);
  EXPECT_LE(at_400 - at_100, 300 * 512);  // 512 bytes a step: a record without its norms
}
