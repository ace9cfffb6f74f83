#include "prism/compare/sentences.h"

#include <gtest/gtest.h>

#include "tests/compare/helpers.h"
#include "tests/io/temporary_folder.h"

namespace prism::compare {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using io::contains;

std::string said(const Plan& plan, const std::vector<RunOutcome>& runs) {
  std::string text;
  for (const auto& sentence : sentences(plan, analyze(plan, runs))) text += sentence.text + "\n";
  return text;
}

Plan plan_with_seeds(const std::string& seeds = "1") {
  return plan_of({"compare.optimizers=muon,prism", "compare.lr=0.01,0.02,0.04", "compare.seeds=" + seeds});
}

// Returns runs of both optimizers at the three rates, then with further seeds at the middle rate.
std::vector<RunOutcome> runs_of(const Plan& plan, const std::vector<double>& muon, const std::vector<double>& prism,
                                const std::vector<double>& muon_seeds = {},
                                const std::vector<double>& prism_seeds = {}) {
  std::vector<RunOutcome> runs;
  for (const size_t contender : {0, 1}) {
    const auto& losses = contender == 0 ? muon : prism;
    const auto& seeds = contender == 0 ? muon_seeds : prism_seeds;
    const double rates[] = {0.01, 0.02, 0.04};
    for (size_t i = 0; i < 3; ++i) runs.push_back(outcome_of(plan, contender, rates[i], 1, losses[i]));
    for (size_t i = 0; i < seeds.size(); ++i) {
      runs.push_back(outcome_of(plan, contender, 0.02, static_cast<int64_t>(i + 2), seeds[i]));
    }
  }
  return runs;
}

TEST(Words, SayThatOneSeedGivesNoCertainty) {
  const Plan plan = plan_with_seeds();
  const auto text = said(plan, runs_of(plan, {3.2, 3.1, 3.3}, {3.1, 3.0, 3.2}));
  EXPECT_TRUE(contains(text, "**PRISM** has the lowest held-out loss: **3.0000**, 0.1000 below Muon"));
  EXPECT_TRUE(contains(text, "Confidence unknown"));
}

TEST(Words, GiveTheIntervalFromThreeFurtherSeedsOn) {
  const Plan plan = plan_with_seeds("1,2,3,4");
  const auto clear = said(plan, runs_of(plan, {3.2, 3.1, 3.3}, {3.1, 3.0, 3.2}, {3.1, 3.11, 3.12}, {3.0, 3.0, 3.01}));
  EXPECT_TRUE(contains(clear, "PRISM lower ("));
  EXPECT_TRUE(contains(clear, "95 % interval"));
  EXPECT_FALSE(contains(clear, "unknown")) << clear;
  const auto level = said(plan, runs_of(plan, {3.2, 3.1, 3.3}, {3.1, 3.0, 3.2}, {3.1, 3.0, 3.1}, {3.0, 3.1, 3.05}));
  EXPECT_TRUE(contains(level, "PRISM not distinguishable"));
}

TEST(Words, FlagTheEdgeOfTheGridAndDivergedRates) {
  const Plan plan = plan_with_seeds();
  const auto text = said(plan, runs_of(plan, {3.2, 3.1, 3.0}, {3.1, 3.2, kInfinity}));
  EXPECT_TRUE(contains(text, "Muon's best rate, 0.04, is the highest of its grid"));
  EXPECT_TRUE(contains(text, "PRISM's best rate, 0.01, is the lowest of its grid"));
  EXPECT_TRUE(contains(text, "PRISM diverged at 0.04."));
}

TEST(Words, NameASeedThatDivergedAtTheBestRate) {
  const Plan plan = plan_with_seeds("1,2,3,4");
  const auto text =
      said(plan, runs_of(plan, {3.2, 3.1, 3.3}, {3.1, 3.0, 3.2}, {3.1, 3.0, 3.1}, {3.0, kInfinity, 3.05}));
  EXPECT_TRUE(contains(text, "PRISM diverged at its best rate, 0.02, with seed 3."));
  EXPECT_TRUE(contains(text, "**Muon** has the lowest held-out loss"));
}

TEST(Words, SurviveABaselineThatDivergedEverywhere) {
  const Plan plan = plan_with_seeds();
  const auto text = said(plan, runs_of(plan, {kInfinity, kInfinity, kInfinity}, {3.1, 3.0, 3.2}));
  EXPECT_TRUE(contains(text, "**PRISM** has the lowest held-out loss: **3.0000**."));
  EXPECT_FALSE(contains(text, "inf")) << text;
  EXPECT_TRUE(contains(text, "Muon diverged at 0.01, 0.02, 0.04."));
  const auto none = said(plan, runs_of(plan, {kInfinity, kInfinity, kInfinity}, {kInfinity, kInfinity, kInfinity}));
  EXPECT_TRUE(contains(none, "Every run of every optimizer diverged."));
}

TEST(Words, TellTheRangeOfGoodRates) {
  const Plan plan = plan_with_seeds();
  const auto comparison = analyze(plan, runs_of(plan, {3.2, 3.1, 3.3}, {3.01, 3.0, 3.015}));
  EXPECT_EQ(tolerance_text(comparison.results[1]), "≤0.01 – ≥0.04, ×4");
  EXPECT_TRUE(contains(tolerance_text(comparison.results[0]), "0.0174 – 0.0214"));
}

TEST(Table, HasALineForEveryOptimizer) {
  const Plan plan = plan_with_seeds();
  const auto text = screen_table(analyze(plan, runs_of(plan, {3.2, 3.1, 3.3}, {kInfinity, kInfinity, kInfinity})));
  EXPECT_TRUE(contains(text, "Muon (baseline)"));
  EXPECT_TRUE(contains(text, "3.1000"));
  EXPECT_TRUE(contains(text, "diverged"));
}

}  // namespace
}  // namespace prism::compare
