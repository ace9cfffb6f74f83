#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "prism/io/checkpoint.h"
#include "prism/train/trainer.h"

namespace prism::train {

// What a run knows beside weights and optimizer state: state.json of a checkpoint.
struct RunState {
  int64_t step = 0;
  int64_t tokens = 0;
  double seconds = 0;
  int64_t skipped = 0;          // steps that the guard canceled
  int64_t skipped_in_row = 0;   // up to now
  std::string batches;          // hash over the hashes of all batches so far
  std::string initial_weights;  // hash
  std::string data;             // recipe of the training shards
};

// model.safetensors, config.json (Hugging Face's form), optimizer.safetensors and state.json in checkpoints/step-N of
// the run folder; all but the newest `keep` are removed afterwards.
std::filesystem::path save_checkpoint(const std::filesystem::path& run, const Trainer& trainer, const RunState& state,
                                      int64_t keep);

// model.safetensors, config.json and state.json in best/step-N of the run folder, in place of those there.
void save_best(const std::filesystem::path& run, const Trainer& trainer, const RunState& state);

struct Resumed {
  std::optional<RunState> state;  // none: no checkpoint verifies
  std::vector<io::SkippedCheckpoint> skipped;
};

// Loads the newest checkpoint that verifies.
Resumed load_checkpoint(const std::filesystem::path& run, Trainer& trainer);

}  // namespace prism::train
