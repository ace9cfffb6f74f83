#include "prism/train/estimate.h"

#include <gtest/gtest.h>

#include "prism/train/run.h"
#include "prism/train/time_left.h"
#include "tests/train/helpers.h"

using namespace prism;

namespace {

namespace fs = std::filesystem;

uint64_t bytes_below(const fs::path& folder) {
  uint64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  return bytes;
}

}  // namespace

TEST(TimeLeft, CountsEvaluationsSpectraAndCheckpointsToCome) {
  const SmallRun small;
  // 12 steps: evaluations after 4, 8 and 12, spectra after 5 and 10, checkpoints after 8 and 12.
  const auto config = small.config({"metrics.spectra_every=5", "checkpoint.every=8"});
  train::TimeLeft left(config, 7);
  left.add_step(3, 1);
  EXPECT_DOUBLE_EQ(left.seconds(12), 0);
  EXPECT_DOUBLE_EQ(left.seconds(11), 3 + 7 * (3 - 1) / 3.0 / 4)
      << "before one was measured: a third of a step's passes";
  left.add(train::TimeLeft::kEvaluation, 10);
  left.add(train::TimeLeft::kSpectra, 100);
  left.add(train::TimeLeft::kCheckpoint, 1000);
  left.add(train::TimeLeft::kCheckpoint, 3000);
  EXPECT_DOUBLE_EQ(left.seconds(0), 12 * 3 + 3 * 10 + 2 * 100 + 2 * 2000);
  EXPECT_DOUBLE_EQ(left.seconds(4), 8 * 3 + 2 * 10 + 2 * 100 + 2 * 2000);
  EXPECT_DOUBLE_EQ(left.seconds(9), 3 * 3 + 1 * 10 + 1 * 100 + 1 * 2000);
}

TEST(TimeLeft, OfThingsThatAreDueOnlyAtTheEndCountsOne) {
  const SmallRun small;
  const auto config = small.config({"train.eval_every=0", "checkpoint.every=0"});
  const train::TimeLeft left(config, 7);
  EXPECT_EQ(left.parts_left(train::TimeLeft::kEvaluation, 3), 1);
  EXPECT_EQ(left.parts_left(train::TimeLeft::kCheckpoint, 3), 1);
  EXPECT_EQ(left.parts_left(train::TimeLeft::kSpectra, 3), 0);
}

TEST(Estimate, AgreesWithTheRun) {
  const SmallRun small;
  for (const std::string name : {"prism", "adamw", "soap"}) {
    auto config = small.config({"optimizer.name=" + name, "checkpoint.keep=1"});
    config.assign("run.out", (small.folder.path() / name).string(), "test");
    const auto dataset = small.dataset();
    auto complete = config;
    train::resolve(complete, dataset.tokenizer.size());
    const auto estimate = train::estimate(complete, train::size_of(dataset));
    const auto result = train::run(config, dataset, {});
    EXPECT_EQ(estimate.model.parameters(), result.parameters);
    EXPECT_EQ(estimate.tokens, result.tokens);
    EXPECT_NEAR(estimate.epochs, static_cast<double>(estimate.tokens) / static_cast<double>(dataset.train.tokens()),
                1e-9);
    const auto checkpoint = bytes_below(small.folder.path() / name / "checkpoints");
    EXPECT_NEAR(estimate.checkpoint_bytes / static_cast<double>(checkpoint), 1, 0.2) << name << ": headers are small";
    EXPECT_GT(estimate.seconds, 0);
    EXPECT_GT(estimate.step_seconds, estimate.optimizer_seconds);
  }
}

TEST(Estimate, OfALargeModelMeasuresASmallOne) {
  const SmallRun small;
  const auto dataset = small.dataset();
  auto config = small.config({"model.layers=200", "model.width=1024", "model.heads=16", "model.kv_heads=4",
                              "model.head_dim=64", "model.mlp=2816"});
  train::resolve(config, dataset.tokenizer.size());
  const auto estimate = train::estimate(config, train::size_of(dataset));
  EXPECT_GT(estimate.memory.weights, 9e9) << "2.4 billion parameters, which this test does not make";
  EXPECT_GT(estimate.seconds, 10);
}

TEST(Dataset, IsEstimatedWithoutBeingBuilt) {
  const SmallRun small;
  const auto config = small.config();
  const auto folder = small.folder.path() / "data";
  const auto estimated = train::estimate_dataset(config, folder);
  EXPECT_FALSE(fs::exists(folder)) << "nothing is written";
  const auto dataset = train::open_dataset(config, folder);
  EXPECT_TRUE(estimated.counted) << "a short text is read to its end";
  EXPECT_EQ(estimated.train_tokens, dataset.train.tokens());
  EXPECT_EQ(estimated.val_tokens, dataset.val.tokens());
  EXPECT_EQ(estimated.bytes_to_write, 2 * (dataset.train.tokens() + dataset.val.tokens()));
  const auto counted = train::estimate_dataset(config, folder);
  EXPECT_TRUE(counted.counted);
  EXPECT_EQ(counted.train_tokens, dataset.train.tokens());
  EXPECT_EQ(counted.val_tokens, dataset.val.tokens());
  EXPECT_EQ(counted.bytes_to_write, 0);
}

TEST(Dataset, OfALongTextIsEstimatedFromItsBeginning) {
  const SmallRun small;
  const auto text = (small.folder.path() / "long.txt").string();
  std::string content;
  for (int64_t i = 0; content.size() < 6'000'000; ++i) {
    for (int64_t n = i * i % 9973; n > 0; n /= 26) content += static_cast<char>('a' + n % 26);
    content += i % 7 == 0 ? " is a word\n" : " ";
    if (i % 100 == 0) content += "<|endoftext|>\n";
  }
  io::write_file_atomically(text, content);
  auto config = small.config({"data.vocab=1000"});
  config.assign("data.path", {text}, "test");
  const auto folder = small.folder.path() / "long";
  const auto estimated = train::estimate_dataset(config, folder);
  EXPECT_FALSE(estimated.counted);
  const auto dataset = train::open_dataset(config, folder);
  EXPECT_NEAR(static_cast<double>(estimated.train_tokens) / static_cast<double>(dataset.train.tokens()), 1, 0.05);
}

TEST(Dataset, EpochsCountWeights) {
  const SmallRun small;
  auto config = small.config();
  const auto text = (small.folder.path() / "text").string();
  config.assign("data.path", {{{"path", text}, {"weight", 3.0}}, text + "/0.txt"}, "test");
  const auto folder = small.folder.path() / "weighted";
  const auto estimated = train::estimate_dataset(config, folder);
  const auto size = train::size_of(train::open_dataset(config, folder));
  EXPECT_EQ(estimated.epoch_tokens, size.epoch_tokens);
  EXPECT_NEAR(static_cast<double>(size.epoch_tokens) / static_cast<double>(size.train_tokens), 61 / 21.0, 0.2);
}
