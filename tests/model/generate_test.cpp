#include "prism/model/generate.h"

#include <cmath>
#include <map>

#include "tests/model/helpers.h"

namespace prism::model {
namespace {

const std::vector<float> kLogits = {0.5F, 2.0F, -1.0F, 1.5F, 0.0F};

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  double sum = 0;
  for (const float z : logits) sum += p.emplace_back(std::exp(z / temperature));
  for (double& x : p) x /= sum;
  return p;
}

std::map<uint32_t, double> frequencies(const GenerateOptions& options, int draws = 40000) {
  Sampler sampler(options);
  std::map<uint32_t, double> result;
  for (int i = 0; i < draws; ++i) result[sampler.draw(kLogits)] += 1.0 / draws;
  return result;
}

// Four standard deviations of a frequency.
double noise(double p) { return 4 * std::sqrt(p * (1 - p) / 40000); }

TEST(Sampler, DrawsFromTheSoftmax) {
  for (const double temperature : {0.5, 1.0, 3.0}) {
    const auto expected = softmax(kLogits, temperature);
    auto actual = frequencies({.temperature = temperature, .seed = 3});
    for (uint32_t id = 0; id < kLogits.size(); ++id) EXPECT_NEAR(actual[id], expected[id], noise(expected[id])) << id;
  }
}

TEST(Sampler, TopKKeepsTheLikeliestInTheirProportions) {
  auto actual = frequencies({.top_k = 2, .seed = 4});
  EXPECT_EQ(actual.size(), 2);
  const double p = std::exp(2.0) / (std::exp(2.0) + std::exp(1.5));
  EXPECT_NEAR(actual[1], p, noise(p));
  EXPECT_NEAR(actual[3], 1 - p, noise(p));
  EXPECT_EQ(frequencies({.top_k = 1}), (std::map<uint32_t, double>{{1, frequencies({.temperature = 0})[1]}}));
  EXPECT_EQ(frequencies({.top_k = 100}), frequencies({}));
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  const auto p = softmax(kLogits, 1);  // 0.47, 0.29 (id 3), 0.11 (id 0), 0.06, 0.02
  EXPECT_EQ(frequencies({.top_p = p[1] - 0.01}).size(), 1);
  EXPECT_EQ(frequencies({.top_p = p[1] + 0.01}).size(), 2);
  EXPECT_EQ(frequencies({.top_p = p[1] + p[3] + 0.01}).size(), 3);
  EXPECT_EQ(frequencies({.top_p = 1e-9}).size(), 1);
  auto actual = frequencies({.top_p = p[1] + 0.01, .seed = 5});
  const double expected = p[1] / (p[1] + p[3]);
  EXPECT_NEAR(actual[1], expected, noise(expected));
}

TEST(Sampler, TopPCountsWithinTheTopK) {  // of two tokens the first has 0.62
  EXPECT_EQ(frequencies({.top_k = 2, .top_p = 0.6}).size(), 1);
  EXPECT_EQ(frequencies({.top_p = 0.6}).size(), 2);
}

TEST(Sampler, TemperatureZeroTakesTheLikeliestAndOfEqualsTheFirst) {
  Sampler sampler({.temperature = 0});
  EXPECT_EQ(sampler.draw(kLogits), 1);
  EXPECT_EQ(sampler.draw(std::vector<float>{1, 3, 3, 2}), 1);
}

TEST(Sampler, ASeedDecidesTheDraws) {
  const auto draws = [](uint64_t seed) {
    Sampler sampler({.seed = seed});
    std::vector<uint32_t> ids;
    for (int i = 0; i < 40; ++i) ids.push_back(sampler.draw(kLogits));
    return ids;
  };
  EXPECT_EQ(draws(1), draws(1));
  EXPECT_NE(draws(1), draws(2));
}

TEST(Sampler, RefusesImpossibleOptionsAndBrokenLogits) {
  EXPECT_EQ(refusal([] { Sampler({.temperature = -1}); }), "temperature must be a number ≥ 0, got -1");
  EXPECT_EQ(refusal([] { Sampler({.temperature = NAN}); }), "temperature must be a number ≥ 0, got nan");
  EXPECT_EQ(refusal([] { Sampler({.top_k = -2}); }), "top_k must be at least 0 (0: all tokens), got -2");
  EXPECT_EQ(refusal([] { Sampler({.top_p = 0}); }), "top_p must be in (0, 1], got 0");
  EXPECT_EQ(refusal([] { Sampler({.top_p = 1.5}); }), "top_p must be in (0, 1], got 1.5");
  EXPECT_EQ(refusal([] { Sampler({.tokens = -1}); }), "tokens must be at least 0, got -1");
  for (const double temperature : {0.0, 1.0}) {
    Sampler sampler({.temperature = temperature});
    EXPECT_THROW(sampler.draw(std::vector<float>{1, NAN}), std::runtime_error);
    EXPECT_THROW(sampler.draw(std::vector<float>{1, INFINITY}), std::runtime_error);
  }
}

class Generate : public testing::Test {
 protected:
  const ModelConfig config_ = tiny(/*tied=*/false);
  const Qwen2 model_ = random_model(config_);
  const std::vector<uint32_t> prompt_ = {3, 14, 15, 9};

  // Generates without a cache: computes the whole text again for every token.
  std::vector<uint32_t> slow_greedy(std::vector<int64_t> text, int64_t tokens) const {
    const torch::NoGradGuard no_gradients;
    std::vector<uint32_t> drawn;
    for (int64_t i = 0; i < tokens; ++i) {
      if (static_cast<int64_t>(text.size()) > config_.context)
        text.erase(text.begin(), text.end() - config_.context / 2);
      const auto logits = model_.forward(torch::tensor(text).unsqueeze(0))[0][-1];
      text.push_back(logits.argmax().item<int64_t>());
      drawn.push_back(static_cast<uint32_t>(text.back()));
    }
    return drawn;
  }
};

TEST_F(Generate, WithTheCacheIsTheSameAsWithout) {
  const auto actual = generate(model_, prompt_, {.tokens = 20, .temperature = 0});
  EXPECT_EQ(actual, slow_greedy({3, 14, 15, 9}, 20));
  EXPECT_GT(std::set<uint32_t>(actual.begin(), actual.end()).size(), 2);
}

TEST_F(Generate, GoesOnPastTheContextFromItsLastHalf) {
  EXPECT_EQ(generate(model_, prompt_, {.tokens = 100, .temperature = 0}), slow_greedy({3, 14, 15, 9}, 100));
  std::vector<uint32_t> longer(50);
  std::iota(longer.begin(), longer.end(), 1);
  EXPECT_EQ(generate(model_, longer, {.tokens = 10, .temperature = 0}),
            slow_greedy(std::vector<int64_t>(longer.begin(), longer.end()), 10));
}

TEST_F(Generate, ASeedDecidesTheText) {
  const GenerateOptions options = {.tokens = 30, .temperature = 2, .top_k = 40, .top_p = 0.95, .seed = 9};
  GenerateOptions other = options;
  other.seed = 10;
  EXPECT_EQ(generate(model_, prompt_, options), generate(model_, prompt_, options));
  EXPECT_NE(generate(model_, prompt_, options), generate(model_, prompt_, other));
}

TEST_F(Generate, EndsAtTheStopTokenOrWhenToldTo) {
  const auto whole = generate(model_, prompt_, {.tokens = 20, .temperature = 0});
  const uint32_t stop = whole[5];
  const auto first = std::find(whole.begin(), whole.end(), stop) + 1;
  EXPECT_EQ(generate(model_, prompt_, {.tokens = 20, .temperature = 0}, stop),
            std::vector<uint32_t>(whole.begin(), first));
  std::vector<uint32_t> seen;
  const auto three = generate(model_, prompt_, {.tokens = 20, .temperature = 0}, {}, [&](uint32_t token) {
    seen.push_back(token);
    return seen.size() < 3;
  });
  EXPECT_EQ(three, std::vector<uint32_t>(whole.begin(), whole.begin() + 3));
  EXPECT_EQ(seen, three);
  EXPECT_TRUE(generate(model_, prompt_, {.tokens = 0}).empty());
}

TEST_F(Generate, RefusesAPromptItCannotRead) {
  EXPECT_EQ(refusal([&] { generate(model_, {}, {}); }), "the prompt needs at least one token");
  EXPECT_EQ(refusal([&] {
              generate(model_, std::vector<uint32_t>{1, 61}, {});
            }),
            "the prompt has token 61, the model knows 61 tokens");
}

}  // namespace
}  // namespace prism::model
