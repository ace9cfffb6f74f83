#include "prism/train/run_folder.h"

#include "prism/io/error.h"
#include "prism/io/json_fields.h"
#include "prism/train/metrics.h"
#include "prism/train/run_fields.h"
#include "tests/io/temporary_folder.h"

namespace prism::train {
namespace {

using nlohmann::json;

// Returns a summary as the first version wrote it, with fewer facts about machine and memory.
json old_summary() {
  return {
      {"status", "interrupted"},
      {"step", 60},
      {"tokens", 61440},
      {"first_loss", 6.5},
      {"loss", 4.5},
      {"val_loss", nullptr},
      {"best_val_loss", 4.25},
      {"skipped", 1},
      {"parameters", 1000},
      {"matrix_parameters", 900},
      {"optimizer_state_bytes", 3600},
      {"initial_weights", "w0"},
      {"final_weights", "w1"},
      {"batches", "b"},
      {"routing", {{{"name", "w"}, {"shape", {30, 30}}, {"rule", "hidden matrix"}, {"optimizer", "prism"}}}},
      {"machine", {{"cpu", "one"}, {"cores", 2}}},
      {"data",
       {{"recipe", "r"},
        {"tokenizer", "t"},
        {"vocab", 300},
        {"train_tokens", 5000},
        {"val_tokens", 100},
        {"sources", {{{"path", "text.txt"}, {"files", 1}, {"bytes", 9000}, {"hash", "h"}}}}}},
      {"timing",
       {{"seconds", 2.5}, {"step_ms", 40.0}, {"optimizer_ms", 4.0}, {"optimizer_share", 0.1}, {"tokens_per_s", 1e4}}},
      {"memory", {{"peak_bytes", 123456}}}};
}

TEST(RunFolder, ReadsTheSummaryOfAnOldRunAndLosesNothingOfIt) {
  const io::TemporaryFolder temporary;
  const RunFolder folder{temporary.path()};
  EXPECT_FALSE(folder.has_ended());
  io::write_json(old_summary(), folder.summary_file());
  const auto summary = folder.summary();
  EXPECT_FALSE(folder.has_ended()) << "it was interrupted";
  EXPECT_EQ(summary.status, RunStatus::Interrupted);
  EXPECT_TRUE(std::isnan(summary.val_loss));
  EXPECT_EQ(summary.machine.cores, 2);
  EXPECT_EQ(io::to_json(summary), old_summary());
}

TEST(RunFolder, ASummaryThatLacksANumberIsRefusedByFileAndKey) {
  const io::TemporaryFolder temporary;
  const RunFolder folder{temporary.path()};
  auto broken = old_summary();
  broken["timing"].erase("step_ms");
  io::write_json(broken, folder.summary_file());
  EXPECT_EQ(io::message_of<Error>([&] { folder.summary(); }),
            folder.summary_file().string() + ": timing.step_ms: missing");
}

TEST(RunFolder, ReadsTheMetricsThatAStepWrote) {
  const io::TemporaryFolder temporary;
  const RunFolder folder{temporary.path()};
  StepRecord record{.step = 1, .tokens = 64, .loss = NAN, .batch = "b", .skipped = true, .culprit = "mlp"};
  MetricsWriter(folder, 0, {}).write(record);
  record = {.step = 2, .tokens = 128, .loss = 3.5, .batch = "c"};
  record.norms["q_proj"] = {.G = 1.23456789, .W = 2, .M = {}, .D = {}, .O = 0.5};
  record.val_loss = 4.5;
  MetricsWriter writer(folder, 1, {});
  EXPECT_EQ(writer.take_earlier().size(), 1u);
  writer.write(record);
  const auto metrics = folder.metrics();
  ASSERT_EQ(metrics.size(), 2u);
  EXPECT_TRUE(std::isnan(metrics[0].loss) && metrics[0].skipped && !metrics[0].val_loss);
  EXPECT_EQ(metrics[0].culprit, "mlp");
  EXPECT_EQ(metrics[1].norms.at("q_proj").G, 1.23457) << "six digits";
  EXPECT_EQ(metrics[1].norms.at("q_proj").O, 0.5);
  EXPECT_FALSE(metrics[1].norms.at("q_proj").M);
  EXPECT_EQ(metrics[1].val_loss, 4.5);
}

}  // namespace
}  // namespace prism::train
