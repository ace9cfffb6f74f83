#include "prism/reproduce/pool.h"

#include <gtest/gtest.h>

#include <fstream>

#include "prism/io/error.h"
#include "prism/io/file.h"
#include "prism/reproduce/report.h"
#include "tests/io/temporary_folder.h"
#include "tests/reproduce/helpers.h"

namespace prism::reproduce {
namespace {

RunKey key_with(const std::vector<std::string>& settings) {
  return key_of(experiments("table2", settings)[0].plan.sweep()[0], kSetup);
}

TEST(RunKey, FoldersAndWhatIsRecordedAreNotPartOfIt) {
  const auto key = key_with({});
  for (const char* setting : {"checkpoint.every=3", "metrics.spectra_every=2", "train.eval_every=7", "run.threads=1",
                              "train.graph=false", "data.vocab=4096"}) {
    EXPECT_EQ(key_with({setting}).hash(), key.hash()) << setting;
  }
}

TEST(RunKey, WhatChangesTheLossIsPartOfIt) {
  const auto key = key_with({});
  for (const char* setting : {"train.steps=61", "train.batch=4", "train.clip=1", "schedule.warmup=3", "model.layers=2",
                              "optimizer.weight_decay=0.1", "optimizer.aux_ratio=0.5", "train.eval_sequences=32"}) {
    EXPECT_NE(key_with({setting}).hash(), key.hash()) << setting;
  }
  auto other = key;
  other.data = "another text";
  EXPECT_NE(other.hash(), key.hash());
  other = key;
  other.device = "cuda";
  EXPECT_NE(other.hash(), key.hash());
}

TEST(RunKey, ADefaultThatIsGivenIsTheDefault) {
  EXPECT_EQ(key_with({"train.accumulate=1", "model.preset=demo"}).hash(), key_with({}).hash());
}

TEST(RunKey, ARateGivenAsAMultipleIsThatRate) {
  EXPECT_EQ(key_with({"optimizer.aux_ratio=auto", "optimizer.aux_lr=0.02"}).hash(), key_with({}).hash());  // lr 0.02
}

TEST(Pool, FindsWhatWasAddedAlsoFromDisk) {
  const io::TemporaryFolder folder;
  const auto planned = experiments("table2")[0].plan.sweep()[0];
  {
    Pool pool(folder.path());
    EXPECT_EQ(pool.find(key_of(planned, kSetup)), nullptr);
    pool.add(stored(planned, 4.5));
  }
  const Pool pool(folder.path());
  const auto* run = pool.find(key_of(planned, kSetup));
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(run->summary.val_loss, 4.5);
}

TEST(Pool, MergesWhatItDoesNotHave) {
  const io::TemporaryFolder here, there;
  const auto sweep = experiments("table2")[0].plan.sweep();
  Pool ours(here.path()), theirs(there.path());
  ours.add(stored(sweep[0], 4.5));
  theirs.add(stored(sweep[0], 4.6));
  theirs.add(stored(sweep[1], 4.7));
  const auto merged = ours.merge(there.path());
  EXPECT_EQ(merged.added, 1);
  EXPECT_EQ(merged.known, 1);
  EXPECT_EQ(ours.find(key_of(sweep[0], kSetup))->summary.val_loss, 4.5);
  EXPECT_NE(Pool(here.path()).find(key_of(sweep[1], kSetup)), nullptr);
}

// Adds a result to a pool in `folder` and replaces a piece of its file. Returns the file.
std::filesystem::path add_edited(const io::TemporaryFolder& folder, const compare::PlannedRun& planned,
                                 const std::string& piece, const std::string& replacement) {
  const auto run = stored(planned, 4.5);
  Pool(folder.path()).add(run);
  auto file = folder.path() / "results" / run.file_name();
  auto text = io::read_file(file);
  const auto at = text.find(piece);
  EXPECT_NE(at, std::string::npos) << piece;
  std::ofstream(file) << text.replace(at, piece.size(), replacement);
  return file;
}

TEST(Pool, ResultsOfOtherNumericsAreNotUsed) {
  const io::TemporaryFolder folder;
  const auto planned = experiments("table2")[0].plan.sweep()[0];
  add_edited(folder, planned, "\"numerics\": 1", "\"numerics\": 0");
  EXPECT_EQ(Pool(folder.path()).find(key_of(planned, kSetup)), nullptr);
}

TEST(Pool, AFileWhoseSettingsWereEditedIsRefusedByName) {
  const io::TemporaryFolder folder;
  const auto file =
      add_edited(folder, experiments("table2")[0].plan.sweep()[0], "\"train.clip\":10.0", "\"train.clip\":11.0");
  EXPECT_TRUE(io::contains(io::message_of<Error>([&] { const Pool pool(folder.path()); }), file.string() + ": "));
}

// Results of other machines are copied by reading and writing them, so nothing may be lost on the way.
TEST(Pool, EveryKeptResultIsWrittenAsItWasRead) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("experiments/results")) {
    EXPECT_EQ(to_text(read_stored_run(entry.path())), io::read_file(entry.path())) << entry.path();
    ++files;
  }
  EXPECT_GT(files, 40u);
}

TEST(Pool, AResultThatLacksAKeyIsRefusedByItsPlace) {
  const io::TemporaryFolder folder;
  const auto file = add_edited(folder, experiments("table2")[0].plan.sweep()[0], "\"first_loss\"", "\"first_lost\"");
  EXPECT_EQ(io::message_of<Error>([&] { const Pool pool(folder.path()); }),
            file.string() + ": not a result of prism reproduce: summary.first_loss: missing");
}

TEST(MissingRuns, AreSharedBetweenExperiments) {
  const io::TemporaryFolder folder;
  const Pool pool(folder.path());
  const auto table2 = experiments("table2"), figure = experiments("figure-lr");
  auto both = table2;
  both.insert(both.end(), figure.begin(), figure.end());
  EXPECT_EQ(missing_runs(table2, pool, kSetup).size(), 6);
  EXPECT_EQ(missing_runs(both, pool, kSetup).size(), 6);  // the figure shows runs of the table
}

// Muon takes 30 s, PRISM 36 s, and with 40 times the steps both take 20 to 24 minutes.
TEST(MissingRuns, TheShortestComeFirstAndAboutEqualOnesInTheOrderOfTheExperiments) {
  const io::TemporaryFolder folder;
  Pool pool(folder.path());
  const auto one = [](const std::string& name, const std::vector<std::string>& settings) {
    return experiments(name, settings)[0];
  };
  const std::vector<Experiment> all = {one("table2", {"train.steps=2400"}), one("figure-lr", {}),
                                       one("figure-lr", {"optimizer.momentum=0.9"})};
  const auto longer = one("table2", {}).plan;
  pool.add(stored(longer.run(0, 0.02, 2), 4.5, /*wall_seconds=*/30));
  pool.add(stored(longer.run(1, 0.02, 2), 4.5, /*wall_seconds=*/36));
  std::vector<double> steps, momenta;
  std::vector<size_t> contenders;
  for (const auto& missing : missing_runs(all, pool, kSetup)) {
    steps.push_back(missing.key.settings.at("train.steps"));
    if (steps.back() == 60) momenta.push_back(missing.key.settings.at("optimizer.momentum"));
    contenders.push_back(missing.run.contender);
  }
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
  EXPECT_EQ(momenta, (std::vector<double>{0.95, 0.95, 0.95, 0.95, 0.9, 0.9, 0.9, 0.9}));
  EXPECT_EQ(contenders, (std::vector<size_t>{0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1}));
}

TEST(MissingRuns, TheOtherSeedsComeAtTheBestRateOnceASweepIsComplete) {
  const io::TemporaryFolder folder;
  Pool pool(folder.path());
  const auto table = experiments("table2", {"compare.seeds=1,2,3"});
  const auto sweep = table[0].plan.sweep();
  EXPECT_EQ(state_of(table[0], pool, kSetup).later, 4);
  for (const auto& planned : sweep) {
    if (planned.contender == 0) pool.add(stored(planned, planned.lr == 0.05 ? 4 : 5));
  }
  const auto state = state_of(table[0], pool, kSetup);
  EXPECT_EQ(state.later, 2);  // of the other contender
  EXPECT_EQ(state.missing.size(), 3 + 2);
  for (const auto& missing : state.missing) {
    EXPECT_TRUE(missing.run.contender == 1 || missing.run.lr == 0.05) << missing.name;
  }
}

TEST(MissingRuns, TimesComeFromRunsOfTheSameKind) {
  const io::TemporaryFolder folder;
  Pool pool(folder.path());
  const auto table = experiments("table2");
  pool.add(stored(table[0].plan.sweep()[0], 4.5, /*wall_seconds=*/30));
  for (const auto& missing : missing_runs(table, pool, kSetup)) EXPECT_NEAR(missing.seconds, 30, 1e-9);
}

TEST(Results, ATableHasARowForEachRateAndSaysWhatDiverged) {
  const io::TemporaryFolder folder;
  Pool pool(folder.path());
  const auto table = experiments("table2");
  for (const auto& planned : table[0].plan.sweep()) {
    const bool diverges = planned.contender == 0 && planned.lr > 0.02;
    pool.add(stored(planned, diverges ? std::numeric_limits<double>::infinity() : 4 + planned.lr));
  }
  const auto state = state_of(table[0], pool, kSetup);
  EXPECT_TRUE(state.complete());
  const auto rows = rows_of(table[0], state, pool, kSetup);
  ASSERT_EQ(rows.size(), 6);
  EXPECT_EQ(rows[1].diverged, 1);
  EXPECT_EQ(rows[1].diverged_step, 10);
  const auto text = markdown_table(table[0], rows);
  EXPECT_NE(text.find("| Muon | 0.05 | 1 | diverged | diverged | diverged | diverged at step 10 |"), std::string::npos)
      << text;
  EXPECT_NE(text.find("| PRISM γ 2 | 0.02 (best) | 1 | 4.0200 | 4.0200 | 3.266 | steady |"), std::string::npos) << text;
  EXPECT_EQ(most_common_setup(table, pool), kSetup);
}

// Curves are stored with six digits and the final loss with all of them. A run still reaches its own loss at its end.
TEST(Results, TheBaselineReachesItsOwnLoss) {
  const io::TemporaryFolder folder;
  Pool pool(folder.path());
  const auto table = experiments("table2");
  for (const auto& planned : table[0].plan.sweep()) {
    auto run = stored(planned, 4.0123451 + planned.lr);
    run.curves.val.loss = {4.01235 + planned.lr};
    pool.add(run);
  }
  const auto comparison = compare::analyze(table[0].plan, state_of(table[0], pool, kSetup).outcomes);
  EXPECT_TRUE(comparison.results[comparison.baseline].tokens_to_baseline);
}

}  // namespace
}  // namespace prism::reproduce
