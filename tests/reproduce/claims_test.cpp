#include "prism/reproduce/claims.h"

#include <gtest/gtest.h>

#include <limits>

#include "prism/io/error.h"
#include "prism/reproduce/report.h"
#include "tests/io/temporary_folder.h"
#include "tests/reproduce/helpers.h"

namespace prism::reproduce {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Table 2 at the rates 0.02, 0.05 and 0.1: Muon 4, 6 and diverged; PRISM 3.5, 3.52 and 3.9.
class Claims : public testing::Test {
 protected:
  Claims() : table_(experiments("table2")[0]), pool_(folder_.path()) {
    const std::vector<double> losses = {4, 6, kInfinity, 3.5, 3.52, 3.9};
    const auto sweep = table_.plan.sweep();
    for (size_t i = 0; i < sweep.size(); ++i) {
      auto run = stored(sweep[i], losses[i]);
      run.norms = {.step = {1, 60}, .W = {10, 100 - 10 * static_cast<double>(i)}};
      pool_.add(run);
    }
  }
  Verdict judged(const std::string& claim) const {
    const auto state = state_of(table_, pool_, kSetup);
    return judge(parse_claim(claim, table_.plan), table_.plan, rows_of(table_, state, pool_, kSetup));
  }
  std::string refusal(const std::string& claim) const {
    return io::message_of<Error>([&] { parse_claim(claim, table_.plan); });
  }

  io::TemporaryFolder folder_;
  Experiment table_;
  Pool pool_;
};

TEST_F(Claims, AreDecidedByTheirInequalityAndSayTheNumbers) {
  EXPECT_EQ(judged("PRISM wins | loss prism-2 < muon").sentence,
            "Confirmed: PRISM wins (PRISM γ 2 at 0.02 3.5000 < Muon at 0.02 4.0000)");
  EXPECT_EQ(judged("Muon wins | loss muon < prism-2").sentence,
            "Refuted: Muon wins (Muon at 0.02 4.0000, but PRISM γ 2 at 0.02 3.5000)");
  EXPECT_EQ(judged("x | loss prism-2@0.05 < prism-2@0.02+0.05").judgment, Judgment::Confirmed);
  EXPECT_EQ(judged("x | loss prism-2@0.1 < prism-2@0.02+0.05").judgment, Judgment::Refuted);
  EXPECT_EQ(judged("x | loss muon < prism-2*1.2").judgment, Judgment::Confirmed);
}

TEST_F(Claims, ADivergedRunIsAboveEveryLoss) {
  EXPECT_EQ(judged("Muon is lost | loss muon@0.05 muon@0.1 > muon@0.02+1").sentence,
            "Confirmed: Muon is lost (Muon at 0.05 6.0000, Muon at 0.1 diverged > Muon at 0.02 4.0000 + 1)");
  EXPECT_EQ(judged("x | diverged muon@0.05 muon@0.1 > 0").sentence, "Refuted: x (Muon at 0.05 did not diverge)");
}

TEST_F(Claims, ChainsCompareEachGroupWithTheNext) {
  EXPECT_EQ(judged("x | W muon@0.02 > muon@0.05 > prism-2@0.1").judgment, Judgment::Confirmed);
  EXPECT_EQ(judged("x | W muon@0.02 > prism-2@0.1 > muon@0.05").judgment, Judgment::Refuted);
}

TEST_F(Claims, ASpreadIsTheLargestMinusTheSmallest) {
  EXPECT_EQ(judged("γ does not matter | spread loss prism-2@0.02 prism-2@0.05 prism-2@0.1 < 0.02").sentence,
            "Refuted: γ does not matter (from PRISM γ 2 at 0.02 3.5000 to PRISM γ 2 at 0.1 3.9000: 0.4000)");
  EXPECT_EQ(judged("x | spread loss prism-2@0.02 prism-2@0.05 < 0.03").judgment, Judgment::Confirmed);
}

TEST_F(Claims, AreOpenWhereARunIsMissingOrDidNotRecordIt) {
  EXPECT_EQ(judged("x | O prism-2 > 0.99").sentence, "Not known yet: x");
  const auto fresh = experiments("table2")[0];
  EXPECT_EQ(judge(parse_claim("x | loss prism-2 < muon", fresh.plan), fresh.plan, {}).judgment, Judgment::Open);
}

TEST_F(Claims, ThatCannotBeReadAreRefused) {
  EXPECT_NE(refusal("PRISM wins").find("expected TEXT | MEASURE"), std::string::npos);
  EXPECT_NE(refusal("x | luck prism-2 < muon").find("got \"luck\""), std::string::npos);
  EXPECT_NE(refusal("x | loss prism < muon").find("(muon, prism-2), got \"prism\""), std::string::npos);
  EXPECT_NE(refusal("x | loss prism-2@0.3 < muon").find("expected a rate of prism-2 (0.02, 0.05, 0.1)"),
            std::string::npos);
  EXPECT_NE(refusal("x | loss prism-2@fast < muon").find("expected a number, got \"fast\""), std::string::npos);
  EXPECT_NE(refusal("x | loss prism-2 <").find("both sides"), std::string::npos);
}

}  // namespace
}  // namespace prism::reproduce
