#include "prism/compare/analysis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "prism/compare/summary.h"
#include "tests/compare/helpers.h"
#include "tests/io/temporary_folder.h"

namespace prism::compare {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr const char* kFair = "nothing was thrown";

// Returns what is unfair about comparing these runs.
std::string complaint(const std::vector<RunOutcome>& runs) {
  Comparison comparison;
  return io::message_of<std::runtime_error>([&] { check_equal_start_and_data(runs, comparison); });
}

class TwoOptimizers : public testing::Test {
 protected:
  // Returns runs with these losses: at two rates with the first seed, then at the better rate with the other seeds.
  std::vector<RunOutcome> runs(const std::vector<double>& muon, const std::vector<double>& prism) const {
    std::vector<RunOutcome> runs;
    for (const size_t contender : {0, 1}) {
      const auto& losses = contender == 0 ? muon : prism;
      runs.push_back(outcome_of(plan_, contender, 0.01, 1, losses[0]));
      runs.push_back(outcome_of(plan_, contender, 0.02, 1, losses[1]));
      const double best = losses[1] < losses[0] ? 0.02 : 0.01;
      for (size_t i = 2; i < losses.size(); ++i) {
        runs.push_back(outcome_of(plan_, contender, best, static_cast<int64_t>(i), losses[i]));
      }
    }
    return runs;
  }

  const Plan plan_ = plan_of({"compare.optimizers=muon,prism", "compare.lr=0.01,0.02", "compare.seeds=1,2,3,4"});
};

TEST_F(TwoOptimizers, AreComparedBestAgainstBestOverTheSeedsThatDidNotChooseTheRates) {
  const auto comparison = analyze(plan_, runs({3.0, 3.2, 3.1, 3.0, 3.2}, {3.3, 2.8, 2.9, 2.9, 2.8}));
  ASSERT_EQ(comparison.results.size(), 2u);
  const auto &muon = comparison.results[0], &prism = comparison.results[1];
  EXPECT_EQ(muon.sweep->best.lr, 0.01);
  EXPECT_EQ(prism.sweep->best.lr, 0.02);
  EXPECT_NEAR(muon.final.mean, 3.1, 1e-12) << "the first seed is not among them";
  EXPECT_EQ(comparison.baseline, 0u);
  EXPECT_EQ(comparison.winner, 1u);
  EXPECT_FALSE(muon.difference);
  ASSERT_TRUE(prism.difference && prism.difference->interval);
  const double d[] = {2.9 - 3.1, 2.9 - 3.0, 2.8 - 3.2}, mean = (d[0] + d[1] + d[2]) / 3;
  double squares = 0;
  for (const double x : d) squares += (x - mean) * (x - mean);
  const double half = 4.3026527297 * std::sqrt(squares / 2 / 3);
  EXPECT_NEAR(prism.difference->mean, mean, 1e-12);
  EXPECT_NEAR(prism.difference->interval->low, mean - half, 1e-9);
  EXPECT_NEAR(prism.difference->interval->high, mean + half, 1e-9);
}

TEST_F(TwoOptimizers, AreTimedToTheBestLossOfTheBaseline) {
  const auto comparison = analyze(plan_, runs({3.0, 3.2, 3, 3, 3}, {3.3, 2.0, 2, 2, 2}));
  // PRISM falls from 4 at 100 tokens and 10 s to 2 at 200 tokens and 20 s: half way it is at 3.
  EXPECT_NEAR(*comparison.results[1].tokens_to_baseline, 150, 1e-12);
  EXPECT_NEAR(*comparison.results[1].seconds_to_baseline, 15, 1e-12);
  EXPECT_EQ(comparison.results[0].tokens_to_baseline, 200) << "the baseline reaches it at its end";
  const auto worse = analyze(plan_, runs({3.0, 3.2, 3, 3, 3}, {3.3, 3.1, 3, 3, 3}));
  EXPECT_FALSE(worse.results[1].tokens_to_baseline) << "never";
}

TEST_F(TwoOptimizers, ThatDivergeAreReportedAndNotDropped) {
  const auto comparison = analyze(plan_, runs({3.0, kInfinity, 3.1, kInfinity, 3.2}, {kInfinity, kInfinity}));
  const auto &muon = comparison.results[0], &prism = comparison.results[1];
  EXPECT_EQ(muon.points[1].loss, kInfinity);
  EXPECT_EQ(muon.final.mean, kInfinity) << "one of its seeds diverged at the best rate";
  EXPECT_FALSE(muon.final.interval);
  EXPECT_FALSE(prism.sweep);
  EXPECT_FALSE(prism.difference);
  const auto json =
      summary_json(plan_, comparison, runs({3.0, kInfinity, 3.1, kInfinity, 3.2}, {kInfinity, kInfinity}));
  EXPECT_EQ(json.at("optimizers").size(), 2u);
  EXPECT_TRUE(json.at("optimizers")[0].at("final").at("mean").is_null());
  int diverged = 0;
  for (const auto& run : json.at("runs")) diverged += run.at("status") == "diverged" ? 1 : 0;
  EXPECT_EQ(diverged, 4);
}

TEST_F(TwoOptimizers, ThatAllDivergeHaveNoWinner) {
  const auto all = runs({kInfinity, kInfinity}, {kInfinity, kInfinity});
  EXPECT_TRUE(summary_json(plan_, analyze(plan_, all), all).at("winner").is_null());
}

TEST_F(TwoOptimizers, BothDivergedWithASeedHaveNoDifference) {
  const auto comparison = analyze(plan_, runs({3, 4, 3, kInfinity, 3}, {3, 4, 3, kInfinity, 3}));
  EXPECT_FALSE(std::isfinite(comparison.results[1].difference->mean));
  EXPECT_FALSE(comparison.results[1].difference->interval);
}

TEST_F(TwoOptimizers, MustBeginWithTheSameWeights) {
  auto all = runs({3.0, 3.2, 3, 3, 3}, {3, 2, 2, 2, 2});
  EXPECT_EQ(complaint(all), kFair);
  all[6].summary.initial_weights = "others";
  EXPECT_EQ(complaint(all),
            "the comparison is invalid: muon-lr0.01-seed1 and prism-lr0.02-seed1 began with different weights although "
            "both have seed 1");
  EXPECT_THROW(analyze(plan_, all), std::runtime_error);
}

TEST_F(TwoOptimizers, MustSeeTheSameBatches) {
  auto all = runs({3.0, 3.2, 3, 3, 3}, {3, 2, 2, 2, 2});
  all[7].batches[1] = "another";
  EXPECT_EQ(
      complaint(all),
      "the comparison is invalid: muon-lr0.01-seed2 and prism-lr0.02-seed2 saw different batches although both have "
      "seed 2");
}

TEST_F(TwoOptimizers, MustTrainOnTheSameAmountWhenBothFinish) {
  auto all = runs({3.0, 3.2, 3, 3, 3}, {3, 2, 2, 2, 2});
  all[7].batches.emplace_back("one more");
  EXPECT_EQ(complaint(all),
            "the comparison is invalid: muon-lr0.01-seed2 and prism-lr0.02-seed2 were trained for different numbers of "
            "steps although both have seed 2");
}

TEST_F(TwoOptimizers, MayEndEarlyButThenSawTheBeginning) {
  auto all = runs({3.0, kInfinity, 3, 3, 3}, {kInfinity, 2, 2, 2, 2});
  all[1].batches.pop_back();
  all[5].batches.pop_back();
  EXPECT_EQ(complaint(all), kFair) << "the shorter is the beginning of the longer";
  all[1].batches[0] = "another";
  EXPECT_TRUE(io::contains(complaint(all), "muon-lr0.01-seed1 and muon-lr0.02-seed1 saw different batches"));
}

TEST_F(TwoOptimizers, ShareTheHashesThatTheSummaryNames) {
  const auto all = runs({3.0, 3.2, 3, 3, 3}, {3, 2, 2, 2, 2});
  const auto json = summary_json(plan_, analyze(plan_, all), all);
  EXPECT_EQ(json.at("initial_weights"),
            nlohmann::json({{"1", "weights 1"}, {"2", "weights 2"}, {"3", "weights 3"}, {"4", "weights 4"}}));
  EXPECT_EQ(json.at("batches").at("3"), "all batches 3");
}

TEST(Baseline, IsTheBestThatIsNotPrismUnlessNamed) {
  const std::vector<std::string> settings = {"compare.optimizers=adamw,muon,prism", "compare.lr=0.01"};
  const auto compared = [&](const std::vector<std::string>& more) {
    auto all = settings;
    all.insert(all.end(), more.begin(), more.end());
    const Plan plan = plan_of(all);
    std::vector<RunOutcome> runs;
    const double losses[] = {3.5, 3.2, 3.0};
    for (size_t i = 0; i < 3; ++i) runs.push_back(outcome_of(plan, i, 0.01, 1, losses[i]));
    return analyze(plan, runs);
  };
  EXPECT_EQ(compared({}).baseline, 1u);
  EXPECT_EQ(compared({"compare.baseline=adamw"}).baseline, 0u);
  EXPECT_EQ(compared({"compare.baseline=prism"}).baseline, 2u);
  const auto one_seed = compared({});
  EXPECT_NEAR(one_seed.results[2].difference->mean, -0.2, 1e-12);
  EXPECT_FALSE(one_seed.results[2].difference->interval) << "one seed gives no interval";
}

}  // namespace
}  // namespace prism::compare
