#include "prism/bench/profile.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <numeric>

#include "prism/bench/kernels.h"
#include "prism/bench/timing.h"

namespace prism::bench {
namespace {

TEST(KernelTimes, EndWhereTheNextKernelBegins) {
  const std::vector<Span> spans = {
      {"a", 0, 3'000'000, 0}, {"b", 2'000'000, 4'000'000, 0}, {"c", 5'000'000, 6'000'000, 0}};
  EXPECT_EQ(kernel_ms(spans), (std::vector<double>{2, 2, 1}));
  const auto profile = summarize(at::kCUDA, spans);
  EXPECT_DOUBLE_EQ(profile.total_ms, 6);
  EXPECT_DOUBLE_EQ(profile.idle_ms, 1);
}

TEST(OperatorTimes, LeaveOutWhatIsCalled) {
  const std::vector<Span> spans = {{"outer", 0, 10'000'000, 1},
                                   {"inner", 1'000'000, 5'000'000, 1},
                                   {"innermost", 2'000'000, 3'000'000, 1},
                                   {"elsewhere", 2'000'000, 4'000'000, 2},
                                   {"inner", 6'000'000, 8'000'000, 1}};
  EXPECT_EQ(operator_ms(spans), (std::vector<double>{4, 3, 1, 2, 2}));
  const auto lines = summarize(at::kCPU, spans).lines;
  EXPECT_EQ(lines.front().name, "inner");
  EXPECT_EQ(lines.front().calls, 2);
  EXPECT_DOUBLE_EQ(lines.front().ms, 5);
}

TEST(Profile, SeesTheOperatorsOfTheCpu) {
  const auto A = torch::randn({64, 64});
  const auto spans = profile(at::kCPU, [&] {
    for (int i = 0; i < 3; ++i) torch::mm(A, A);
  });
  const auto count = std::ranges::count(spans, "aten::mm", &Span::name);
  EXPECT_EQ(count, 3);
}

TEST(Profile, SeesTheStepOfAnOptimizer) {
  const auto spans = profile_step(entrant("muon"), make_parameters({{24, 16}, {24, 16}}, at::kCPU));
  const auto summary = summarize(at::kCPU, spans);
  ASSERT_FALSE(summary.lines.empty());
  const double sum = std::accumulate(summary.lines.begin(), summary.lines.end(), 0.0,
                                     [](double total, const ProfileLine& line) { return total + line.ms; });
  EXPECT_NEAR(sum + summary.idle_ms, summary.total_ms, 1e-6);
}

TEST(Measure, TimesWholeStepsAndCountsTheState) {
  const auto parameters = make_parameters({{24, 16}, {24, 16}}, at::kCPU);
  const auto result = measure(entrant("adamw"), parameters, 3);
  EXPECT_GT(result.eager_ms, 0);
  EXPECT_FALSE(result.captured_ms);
  EXPECT_NEAR(result.memory_mib * (1 << 20), 2 * 2 * 24 * 16 * 4, 64);  // two averages, and counters
  EXPECT_NEAR(result.to_json(std::nullopt).at("gb_per_s").get<double>(), 28 * 2 * 24 * 16 / result.eager_ms / 1e6,
              1e-9);
  EXPECT_FALSE(result.to_json(std::nullopt).contains("share_of_floor"));
}

TEST(Measure, StartsFromTheSameParametersEachTime) {
  const auto first = make_parameters({{3, 2}}, at::kCPU).front(), second = make_parameters({{3, 2}}, at::kCPU).front();
  EXPECT_TRUE(torch::equal(first, second));
  EXPECT_TRUE(torch::equal(first.grad(), second.grad()));
}

}  // namespace
}  // namespace prism::bench
