#include "prism/compare/plan.h"

#include <gtest/gtest.h>

#include "prism/io/error.h"
#include "tests/compare/helpers.h"
#include "tests/io/temporary_folder.h"

namespace prism::compare {
namespace {

using io::contains;

std::string refusal(const std::vector<std::string>& settings) {
  return io::message_of<Error>([&] { plan_of(settings); });
}

TEST(Plan, IsTheGridOfOptimizersAndRatesWithTheFirstSeed) {
  const Plan plan = plan_of({"compare.optimizers=muon,prism", "compare.lr=0.04,0.01,0.02", "compare.seeds=7,8,9"});
  const auto sweep = plan.sweep();
  ASSERT_EQ(sweep.size(), 6u);
  EXPECT_EQ(sweep[0].folder, std::filesystem::path("out") / "runs" / "muon-lr0.01-seed7") << "rates ascending";
  EXPECT_EQ(sweep[5].folder.filename(), "prism-lr0.04-seed7");
  for (const auto& run : sweep) {
    EXPECT_EQ(run.config.integer("train.seed"), 7);
    EXPECT_EQ(run.config.real("optimizer.lr"), run.lr);
    EXPECT_EQ(run.config.string("run.out"), run.folder.string());
    EXPECT_EQ(run.config.string("optimizer.name"), run.contender == 0 ? "muon" : "prism");
  }
  EXPECT_EQ(plan.total_runs(), 6u + 2 * 2) << "the other seeds at one rate each";
  EXPECT_EQ(plan.run(1, 0.02, 9).folder.filename(), "prism-lr0.02-seed9");
}

TEST(Plan, LetsEachOptimizerHaveItsOwnSettings) {
  const Plan plan =
      plan_of({"compare.optimizers=muon,prism-ema,big", "compare.lr=0.01,0.02", "optimizer.weight_decay=0.1",
               "compare.override.prism-ema.optimizer.name=prism", "compare.override.prism-ema.optimizer.covariance=ema",
               "compare.override.prism-ema.compare.lr=0.005", "compare.override.big.optimizer.name=adamw",
               "compare.override.big.optimizer.weight_decay=0.3", "compare.override.big.train.clip=7"});
  const auto& contenders = plan.contenders();
  EXPECT_EQ(contenders[1].label, "PRISM ema");
  EXPECT_EQ(contenders[1].config.string("optimizer.covariance"), "ema");
  EXPECT_EQ(contenders[1].config.real("optimizer.weight_decay"), 0.1) << "what is not overridden stays";
  EXPECT_EQ(contenders[1].rates, std::vector<double>{0.005}) << "a grid of its own";
  EXPECT_EQ(contenders[2].config.string("optimizer.name"), "adamw");
  EXPECT_EQ(contenders[2].config.real("train.clip"), 7);
  EXPECT_EQ(plan.sweep().size(), 2u + 1 + 2);
}

TEST(Plan, RefusesLabelsThatDoNotTellContendersApart) {
  const auto labeled = [](const std::string& label) {
    return refusal({"compare.optimizers=muon,prism", "compare.lr=0.1", "compare.override.muon.compare.label=" + label});
  };
  EXPECT_EQ(labeled("'Muon, rows'"), "nothing was thrown");
  EXPECT_EQ(labeled("PRISM"),
            "--set compare.override.muon.compare.label=PRISM: compare.label: expected a different label for each "
            "optimizer, got \"PRISM\" for both muon and prism");
  EXPECT_TRUE(contains(labeled(R"("two\nlines")"), R"(expected one line of text, got "two\nlines")"));
}

TEST(Plan, RefusesToSetWhatItSetsInEveryRun) {
  const auto refused = [](const std::string& setting) {
    return refusal({"compare.optimizers=muon", "compare.lr=0.1", setting});
  };
  EXPECT_EQ(refused("optimizer.lr=0.3"),
            "--set optimizer.lr=0.3: optimizer.lr: has no effect on a comparison; set compare.lr instead");
  EXPECT_EQ(refused("train.seed=2"),
            "--set train.seed=2: train.seed: has no effect on a comparison; set compare.seeds instead");
}

TEST(Plan, RefusesWhatCannotBeCompared) {
  EXPECT_TRUE(contains(refusal({"compare.lr=0.1"}), "compare.optimizers"));
  EXPECT_TRUE(contains(refusal({"compare.optimizers=muon"}), "compare.lr"));
  EXPECT_TRUE(contains(refusal({"compare.optimizers=muon,muon", "compare.lr=0.1"}), "expected each value once"));
  EXPECT_TRUE(contains(refusal({"compare.optimizers=mon", "compare.lr=0.1"}), "\"mon\" is not an optimizer"));
  EXPECT_TRUE(contains(refusal({"compare.optimizers=a/b", "compare.lr=0.1"}), "expected a name of letters"));
  EXPECT_TRUE(contains(refusal({"compare.optimizers=muon", "compare.lr=0.1", "compare.override.prism.train.clip=1"}),
                       "expected a name of compare.optimizers"));
  EXPECT_TRUE(
      contains(refusal({"compare.optimizers=muon", "compare.lr=0.1", "compare.baseline=adamw"}), "compare.baseline"));
}

TEST(Plan, RefusesOverridesThatWouldBeUnfair) {
  const std::vector<std::string> base = {"compare.optimizers=muon,prism", "compare.lr=0.1"};
  for (const std::string key :
       {"model.width=64", "data.vocab=300", "train.seed=3", "train.steps=2000", "train.batch=8", "train.context=16",
        "train.eval_every=5", "train.eval_sequences=5", "train.max_skips=99", "train.deterministic=true",
        "compare.seeds=3", "run.out=elsewhere", "run.device=cpu", "run.threads=4", "optimizer.lr=0.3"}) {
    auto settings = base;
    settings.push_back("compare.override.prism." + key);
    EXPECT_TRUE(contains(refusal(settings), key.substr(0, key.find('='))));
  }
  for (const std::string key :
       {"optimizer.gamma=2", "optimizer.aux_lr=0.1", "schedule.warmup=5", "train.clip=2", "train.accumulate=2",
        "train.graph=false", "model.recompute=true", "checkpoint.every=5", "metrics.spectra_every=5"}) {
    auto settings = base;
    settings.push_back("compare.override.prism." + key);
    EXPECT_EQ(refusal(settings), "nothing was thrown") << key;
  }
}

}  // namespace
}  // namespace prism::compare
