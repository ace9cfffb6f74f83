#include "prism/model/qwen2.h"

#include <sys/resource.h>

#include "prism/model/layer.h"
#include "prism/optim/adam.h"
#include "prism/optim/mixed.h"
#include "prism/optim/prism.h"
#include "tests/close.h"
#include "tests/model/helpers.h"

namespace prism::model {
namespace {

struct Shape {
  bool tied;
  int64_t kv_heads;
};

class Shapes : public testing::TestWithParam<Shape> {
 protected:
  const ModelConfig config_ = tiny(GetParam().tied, GetParam().kv_heads);
  const Qwen2 model_ = random_model(config_);
};
INSTANTIATE_TEST_SUITE_P(Qwen2, Shapes,
                         testing::Values(Shape{true, 2}, Shape{false, 1}, Shape{true, 4}, Shape{false, 2}));

TEST_P(Shapes, TheLossIsTheCrossEntropyOfTheLogits) {
  const auto tokens = random_tokens(config_, 3, 17);
  const auto logits = model_.forward(tokens.narrow(1, 0, 16));
  ASSERT_EQ(logits.sizes(), (std::vector<int64_t>{3, 16, config_.vocab}));
  const auto expected =
      torch::nn::functional::cross_entropy(logits.flatten(0, 1).to(torch::kDouble), tokens.narrow(1, 1, 16).flatten());
  EXPECT_CLOSE(model_.loss(tokens), expected, 1e-6);
  const torch::NoGradGuard no_gradients;
  EXPECT_CLOSE(model_.loss(tokens), expected, 1e-6);
}

// The gradients of the logits take another path than those of the loss: through autograd's linear and cross_entropy.
TEST_P(Shapes, TheLossHasTheGradientsOfTheCrossEntropyOfTheLogits) {
  const auto tokens = random_tokens(config_, 3, 17);
  const auto actual = gradients(model_, tokens);
  for (const auto& [name, parameter] : model_.named_parameters()) parameter.mutable_grad().reset();
  torch::nn::functional::cross_entropy(model_.forward(tokens.narrow(1, 0, 16)).flatten(0, 1),
                                       tokens.narrow(1, 1, 16).flatten())
      .backward();
  for (size_t i = 0; i < actual.size(); ++i) {
    SCOPED_TRACE(model_.named_parameters()[i].first);
    EXPECT_CLOSE(actual[i], model_.named_parameters()[i].second.grad(), 2e-6);
  }
}

TEST_P(Shapes, RecomputationGivesTheSameBits) {
  Qwen2 recomputing = random_model(config_);
  recomputing.set_recompute(true);
  const auto tokens = random_tokens(config_, 2, 20);
  EXPECT_SAME(recomputing.loss(tokens), model_.loss(tokens));
  const auto expected = gradients(model_, tokens), actual = gradients(recomputing, tokens);
  for (size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE(model_.named_parameters()[i].first);
    EXPECT_SAME(actual[i], expected[i]);
  }
}

TEST_P(Shapes, WithACacheTheLogitsAreTheSameHoweverTheTextIsCut) {
  const auto ids = random_tokens(config_, 2, 24);
  const torch::NoGradGuard no_gradients;
  const auto expected = model_.forward(ids);
  for (const std::vector<int64_t>& pieces : {std::vector<int64_t>{24}, {1, 23}, {7, 1, 1, 15}, {20, 3, 1}}) {
    KvCache cache(model_, 2, 24);
    int64_t first = 0;
    for (const int64_t piece : pieces) {
      const auto logits = model_.forward(ids.narrow(1, first, piece), cache);
      EXPECT_CLOSE(logits, expected.narrow(1, first, piece), 1e-5);
      EXPECT_EQ(cache.length(), first += piece);
    }
  }
}

TEST_P(Shapes, TheLastLogitsAreTheLastRow) {
  const auto ids = random_tokens(config_, 2, 9);
  KvCache cache(model_, 2, 12);
  const torch::NoGradGuard no_gradients;
  EXPECT_CLOSE(model_.next_logits(ids, cache), model_.forward(ids).select(1, -1), 1e-6);
  EXPECT_EQ(cache.length(), 9);
}

TEST_P(Shapes, NoTokenSeesWhatFollowsIt) {
  auto ids = random_tokens(config_, 1, 12);
  const torch::NoGradGuard no_gradients;
  const auto before = model_.forward(ids);
  ids.narrow(1, 8, 4).zero_();
  const auto after = model_.forward(ids);
  EXPECT_SAME(after.narrow(1, 0, 8), before.narrow(1, 0, 8));
  EXPECT_GT((after - before).narrow(1, 8, 4).abs().max().item<double>(), 1e-3);
}

TEST_P(Shapes, AStepOfAnOptimizerMovesWhatTheModelComputesWith) {
  Qwen2 trained = random_model(config_);
  const auto tokens = random_tokens(config_, 4, 20);
  prism::Mixed optimizer(trained.named_parameters(), PrismOptions(0.02), AdamWOptions(0.01));
  const double before = trained.loss(tokens).item<double>();
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    trained.loss(tokens).backward();
    optimizer.step();
  }
  EXPECT_LT(trained.loss(tokens).item<double>(), before - 1);
}

TEST(Qwen2, GradientsOfSeveralPassesAddUp) {
  const ModelConfig config = tiny();
  const Qwen2 model = random_model(config);
  const auto tokens = random_tokens(config, 4, 13);
  const auto whole = gradients(model, tokens);
  for (const auto& [name, parameter] : model.named_parameters()) parameter.mutable_grad().reset();
  for (const int64_t first : {0, 1, 2, 3}) (model.loss(tokens.narrow(0, first, 1)) / 4).backward();
  for (size_t i = 0; i < whole.size(); ++i) {
    SCOPED_TRACE(model.named_parameters()[i].first);
    EXPECT_CLOSE(model.named_parameters()[i].second.grad(), whole[i], 2e-6);
  }
}

TEST(Qwen2, AGraphThatIsKeptGivesTheSameGradientsTwice) {
  const ModelConfig config = tiny();
  const Qwen2 model = random_model(config);
  const auto loss = model.loss(random_tokens(config, 2, 13));
  std::vector<at::Tensor> list;
  for (const auto& [name, parameter] : model.named_parameters()) list.push_back(parameter);
  const auto once = torch::autograd::grad({loss}, list, {}, /*retain_graph=*/true);
  const auto twice = torch::autograd::grad({loss}, list);
  for (size_t i = 0; i < once.size(); ++i) EXPECT_SAME(twice[i], once[i]);
}

TEST(Qwen2, ParametersHaveHuggingFacesNamesAndAreLeaves) {
  const Qwen2 model(tiny(false), 1);
  std::vector<std::string> names;
  int64_t elements = 0;
  for (const auto& [name, parameter] : model.named_parameters()) {
    names.push_back(name);
    elements += parameter.numel();
    EXPECT_TRUE(parameter.is_leaf() && parameter.requires_grad() && parameter.is_contiguous()) << name;
  }
  EXPECT_EQ(names.front(), "model.embed_tokens.weight");
  EXPECT_EQ(names[2], "model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(names.back(), "lm_head.weight");
  EXPECT_EQ(names.size(), 3 + 12 * 3);
  EXPECT_EQ(elements, tiny(false).parameters());
}

TEST(Qwen2, SeedAndConfigurationDecideTheWeights) {
  const Qwen2 a(tiny(), 5), b(tiny(), 5), c(tiny(), 6);
  for (size_t i = 0; i < a.named_parameters().size(); ++i) {
    const auto& [name, parameter] = a.named_parameters()[i];
    EXPECT_SAME(parameter, b.named_parameters()[i].second);
    const bool drawn = parameter.dim() == 2;
    EXPECT_EQ(parameter.equal(c.named_parameters()[i].second), !drawn) << name;
  }
}

TEST(Qwen2, AFreshModelGuessesEvenly) {
  ModelConfig config = preset("demo");
  config.vocab = 300;
  const torch::NoGradGuard no_gradients;
  EXPECT_NEAR(Qwen2(config, 3).loss(random_tokens(config, 2, 65)).item<double>(), std::log(300), 0.1);
}

// The logits are computed in several pieces, whose size does not divide the number of rows.
TEST(LinearCrossEntropy, DoesNotDependOnThePieces) {
  const int64_t rows = 700, width = 8, vocab = 9000;
  torch::manual_seed(1);
  const auto h = torch::randn({rows, width}).requires_grad_(), H = torch::randn({vocab, width}).requires_grad_();
  const auto targets = torch::randint(vocab, {rows}, torch::kLong);
  const auto loss = linear_cross_entropy(h, H, targets, torch::kFloat);
  const auto actual = torch::autograd::grad({loss * 3}, {h, H});
  const auto h_exact = h.detach().to(torch::kDouble).requires_grad_(),
             H_exact = H.detach().to(torch::kDouble).requires_grad_();
  const auto exact = torch::nn::functional::cross_entropy(h_exact.mm(H_exact.t()), targets);
  const auto expected = torch::autograd::grad({exact * 3}, {h_exact, H_exact});
  EXPECT_CLOSE(loss, exact, 1e-6);
  // Sums of 9000 float32 exponentials in an order that the compiler chooses: allow twice √9000 roundings.
  for (size_t i = 0; i < 2; ++i)
    EXPECT_LT((actual[i] - expected[i]).norm().item<double>(), 1.2e-5 * expected[i].norm().item<double>());
}

TEST(LinearCrossEntropy, NeverHoldsAllLogits) {
  const int64_t rows = 8192, width = 4, vocab = 32768;  // 1 GiB of logits
  const auto h = torch::randn({rows, width}).requires_grad_(), H = torch::randn({vocab, width}).requires_grad_();
  const auto targets = torch::zeros({rows}, torch::kLong);
  const auto peak = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss / 1024;  // MiB
  };
  const int64_t before = peak();
  linear_cross_entropy(h, H, targets, torch::kFloat).backward();
  EXPECT_LT(peak() - before, 200);
}

TEST(Qwen2, SaysWhatIsWrongWithTheTokens) {
  const Qwen2 model(tiny(), 1);
  EXPECT_MESSAGE(model.forward(random_tokens(tiny(), 1, 33)),
                 "a sequence of 33 tokens is longer than the context of 32");
  EXPECT_MESSAGE(model.forward(torch::zeros({4}, torch::kLong)), "must have the shape (batch, tokens)");
  EXPECT_MESSAGE(model.loss(torch::zeros({4, 1}, torch::kLong)), "(batch, at least 2)");
  EXPECT_MESSAGE(model.loss(torch::tensor({{1, 61}}, torch::kLong)), "tokens must be in [0, 61), got 61 to 61");
  EXPECT_MESSAGE(model.loss(torch::tensor({{1, -1}}, torch::kLong)), "tokens must be in [0, 61), got -1 to -1");
  KvCache cache(model, 1, 4);
  EXPECT_MESSAGE(model.forward(random_tokens(tiny(), 1, 5), cache), "room for 4 more tokens of 1 sequences");
  EXPECT_MESSAGE(model.forward(random_tokens(tiny(), 2, 1), cache), "room for 4 more tokens of 1 sequences");
}

TEST(Qwen2, TakesTokensOfBothIntegerTypes) {
  const Qwen2 model = random_model(tiny());
  const auto tokens = random_tokens(tiny(), 2, 9);
  EXPECT_SAME(model.loss(tokens.to(torch::kInt)), model.loss(tokens));
}

}  // namespace
}  // namespace prism::model
