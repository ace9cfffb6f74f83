#include "prism/reproduce/stability.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "prism/compare/statistics.h"

namespace prism::reproduce {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kEntropy = 7;  // of the words of some text

// Returns losses that fall from 10 toward 3, with noise of the given deviation.
std::vector<double> descent(int64_t steps, double noise = 0.05, unsigned seed = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(0, noise);
  std::vector<double> losses;
  for (int64_t i = 0; i < steps; ++i)
    losses.push_back(3 + 7 * std::exp(-static_cast<double>(i) / 100) + normal(generator));
  return losses;
}

TEST(RunningLoss, IsTheMeanOfTheLastTenthAtMostAHundred) {
  const std::vector<double> ramp = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19};
  const auto running = running_loss(ramp);  // window 2
  EXPECT_EQ(running.front(), 0);
  EXPECT_EQ(running[1], 0.5);
  EXPECT_EQ(running.back(), 18.5);
  std::vector<double> steps(5000, 1.0);
  std::fill(steps.end() - 100, steps.end(), 2.0);
  EXPECT_EQ(running_loss(steps).back(), 2);
  EXPECT_LT(running_loss(steps)[4998], 2);
}

TEST(Divergence, ADescentDoesNotDiverge) { EXPECT_FALSE(divergence(descent(1000), kEntropy, /*stopped=*/false)); }

TEST(Divergence, AStoppedRunDivergedAtItsLastStep) {
  const auto found = divergence(descent(300), kEntropy, /*stopped=*/true);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 300);
  EXPECT_EQ(found->reason, "stopped");
}

TEST(Divergence, AboveTheUnigramEntropyFromTheStepItStaysThere) {
  auto losses = descent(1000, /*noise=*/0);
  for (size_t i = 600; i < losses.size(); ++i) losses[i] = 9;
  const auto found = divergence(losses, kEntropy, false);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->reason, "above unigram entropy");
  EXPECT_GT(found->step, 600);
  EXPECT_LE(found->step, 700);  // the running loss covers 100 steps
}

TEST(Divergence, MoreThanOneAboveItsMinimumButBelowTheEntropy) {
  auto losses = descent(1000, 0);
  for (size_t i = 800; i < losses.size(); ++i) losses[i] = 4.5;
  const auto found = divergence(losses, kEntropy, false);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->reason, "above its minimum");
  EXPECT_GT(found->step, 800);
  for (size_t i = 800; i < losses.size(); ++i) losses[i] = 3.8;
  EXPECT_FALSE(divergence(losses, kEntropy, false));
}

TEST(Divergence, AnExcursionThatComesBackIsNone) {
  auto losses = descent(1000);
  for (size_t i = 400; i < 500; ++i) losses[i] = 12;
  EXPECT_FALSE(divergence(losses, kEntropy, false));
}

TEST(Divergence, LossesThatAreNotFiniteAtTheEndAreDivergence) {
  auto losses = descent(1000);
  losses.back() = kNan;
  EXPECT_TRUE(divergence(losses, kEntropy, false));
}

TEST(Spikes, NormalNoiseHasNone) {
  for (unsigned seed = 1; seed <= 20; ++seed) EXPECT_TRUE(spikes(descent(2000, 0.05, seed)).empty()) << seed;
}

TEST(Spikes, AreFoundWithHeightAndRecovery) {
  auto losses = descent(1000, 0.02);
  for (size_t i = 700; i < 712; ++i) losses[i] += 2;
  losses[705] += 1;
  const auto found = spikes(losses);
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].step, 701);
  EXPECT_NEAR(found[0].height, 3, 0.2);
  ASSERT_TRUE(found[0].recovery);
  EXPECT_EQ(*found[0].recovery, 12);
}

TEST(Spikes, OneThatLastsToTheEndHasNoRecovery) {
  auto losses = descent(1000, 0.02);
  for (size_t i = 900; i < losses.size(); ++i) losses[i] = 8;
  const auto found = spikes(losses);
  ASSERT_EQ(found.size(), 1);
  EXPECT_FALSE(found[0].recovery);
}

TEST(Spikes, ALossThatIsNotFiniteIsAnInfiniteSpike) {
  auto losses = descent(1000, 0.02);
  losses[500] = kNan;
  const auto found = spikes(losses);
  ASSERT_EQ(found.size(), 1);
  EXPECT_TRUE(std::isinf(found[0].height));
  EXPECT_EQ(found[0].recovery, 1);
}

// A two-sample t test at 5 % on normal seeds finds this difference four times in five.
TEST(DetectableDifference, IsFoundFourTimesInFive) {
  constexpr int64_t kSeeds = 5;
  constexpr double kDeviation = 0.01;
  const double difference = detectable_difference(kDeviation, kSeeds);
  const double t = compare::student_quantile(0.975, 2 * (kSeeds - 1));
  std::mt19937 generator(7);
  std::normal_distribution<double> normal(0, kDeviation);
  int found = 0;
  constexpr int kTrials = 20000;
  for (int trial = 0; trial < kTrials; ++trial) {
    double sums[2] = {0, 0}, squares[2] = {0, 0};
    for (int side = 0; side < 2; ++side) {
      for (int64_t i = 0; i < kSeeds; ++i) {
        const double value = normal(generator) + (side == 1 ? difference : 0);
        sums[side] += value, squares[side] += value * value;
      }
    }
    const double n = kSeeds;
    double variance = 0;
    for (int side = 0; side < 2; ++side) variance += (squares[side] - sums[side] * sums[side] / n) / (n - 1) / 2;
    if (std::abs(sums[1] - sums[0]) / n > t * std::sqrt(2 * variance / n)) ++found;
  }
  EXPECT_NEAR(static_cast<double>(found) / kTrials, 0.8, 0.03);
}

}  // namespace
}  // namespace prism::reproduce
