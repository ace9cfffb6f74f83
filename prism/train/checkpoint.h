#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "prism/io/checkpoint.h"
#include "prism/train/run_folder.h"
#include "prism/train/trainer.h"

namespace prism::train {

// model.safetensors, config.json (Hugging Face's form), optimizer.safetensors and state.json in checkpoints/step-N of
// the run folder; all but the newest `keep` are removed afterwards.
std::filesystem::path save_checkpoint(const RunFolder& run, const Trainer& trainer, const RunState& state,
                                      int64_t keep);

// model.safetensors, config.json and state.json in best/step-N of the run folder, in place of those there.
void save_best(const RunFolder& run, const Trainer& trainer, const RunState& state);

struct Resumed {
  std::optional<RunState> state;  // none: no checkpoint verifies
  std::vector<io::SkippedCheckpoint> skipped;
};

// Loads the newest checkpoint that verifies.
Resumed load_checkpoint(const RunFolder& run, Trainer& trainer);

}  // namespace prism::train
