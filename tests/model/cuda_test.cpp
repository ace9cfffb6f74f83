#include <ATen/Context.h>

#include "prism/model/generate.h"
#include "prism/model/ops.h"
#include "tests/close.h"
#include "tests/model/helpers.h"

// The model on the GPU against the one on the CPU; passed over where there is none.
namespace prism::model {
namespace {

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  }

  // head_dim 16: flash attention wants multiples of 8.
  static ModelConfig config(bool tied = true) {
    ModelConfig c = tiny(tied);
    c.head_dim = 16;
    c.width = 64;
    c.mlp = 96;
    c.context = 128;
    return c;
  }

  static Qwen2 on_gpu(const Qwen2& model, at::ScalarType type) {
    Qwen2 copy(model.config(), 0, at::kCUDA);
    const torch::NoGradGuard no_gradients;
    for (size_t i = 0; i < copy.named_parameters().size(); ++i) {
      copy.named_parameters()[i].second.copy_(model.named_parameters()[i].second);
    }
    EXPECT_EQ(copy.compute_dtype(), at::kBFloat16);
    copy.set_compute_dtype(type);
    return copy;
  }

  static double relative_error(const at::Tensor& actual, const at::Tensor& expected) {
    return ((actual.cpu() - expected).norm() / expected.norm()).item<double>();
  }
};

TEST_F(Cuda, InFloat32LossLogitsAndGradientsAreTheCpus) {
  for (const bool tied : {true, false}) {
    const Qwen2 cpu = random_model(config(tied)), gpu = on_gpu(cpu, at::kFloat);
    const auto tokens = random_tokens(cpu.config(), 3, 65);
    EXPECT_CLOSE(gpu.loss(tokens.cuda()), cpu.loss(tokens), 1e-5);
    EXPECT_LT(relative_error(gpu.forward(tokens.cuda()), cpu.forward(tokens)), 1e-5);
    const auto expected = gradients(cpu, tokens), actual = gradients(gpu, tokens.cuda());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_LT(relative_error(actual[i], expected[i]), 5e-5) << cpu.named_parameters()[i].first;
    }
  }
}

TEST_F(Cuda, InBfloat16TheyAreWithinItsPrecision) {
  const Qwen2 cpu = random_model(config()), gpu = on_gpu(cpu, at::kBFloat16);
  const auto tokens = random_tokens(cpu.config(), 8, 65);
  EXPECT_NEAR(gpu.loss(tokens.cuda()).item<double>(), cpu.loss(tokens).item<double>(), 0.02);
  EXPECT_EQ(gpu.forward(tokens.cuda()).scalar_type(), at::kFloat);
  EXPECT_LT(relative_error(gpu.forward(tokens.cuda()), cpu.forward(tokens)), 0.02);
  const auto expected = gradients(cpu, tokens), actual = gradients(gpu, tokens.cuda());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(actual[i].scalar_type(), at::kFloat);
    EXPECT_LT(relative_error(actual[i], expected[i]), 0.06) << cpu.named_parameters()[i].first;
  }
}

TEST_F(Cuda, TheWeightsStartAsOnTheCpu) {
  const Qwen2 cpu(config(), 5), gpu(config(), 5, at::kCUDA);
  for (size_t i = 0; i < cpu.named_parameters().size(); ++i) {
    EXPECT_TRUE(gpu.named_parameters()[i].second.cpu().equal(cpu.named_parameters()[i].second));
  }
}

TEST_F(Cuda, RecomputationGivesTheSameBits) {
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  Qwen2 model = on_gpu(random_model(config()), at::kBFloat16);
  const auto tokens = random_tokens(config(), 4, 65).cuda();
  const auto kept = gradients(model, tokens);
  model.set_recompute(true);
  const auto recomputed = gradients(model, tokens);
  for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(kept[i].equal(recomputed[i])) << i;
  at::globalContext().setDeterministicAlgorithms(false, false);
}

TEST_F(Cuda, GreedyTextIsTheCpus) {
  const Qwen2 cpu = random_model(config(false)), gpu = on_gpu(cpu, at::kFloat);
  const std::vector<uint32_t> prompt = {3, 14, 15, 9};
  EXPECT_EQ(generate(gpu, prompt, {.tokens = 60, .temperature = 0}),
            generate(cpu, prompt, {.tokens = 60, .temperature = 0}));
}

TEST_F(Cuda, NotANumberComesThroughTheLoss) {
  const Qwen2 model = on_gpu(random_model(config()), at::kBFloat16);
  {
    const torch::NoGradGuard no_gradients;
    model.named_parameters()[1].second.fill_(std::nan(""));
  }
  EXPECT_TRUE(std::isnan(model.loss(random_tokens(config(), 2, 9).cuda()).item<double>()));
}

}  // namespace
}  // namespace prism::model
