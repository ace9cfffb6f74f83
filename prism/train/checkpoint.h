#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "prism/io/checkpoint.h"
#include "prism/train/run_folder.h"
#include "prism/train/trainer.h"

namespace prism::train {

// Writes model.safetensors, config.json (Hugging Face's format), optimizer.safetensors and state.json to
// checkpoints/step-N of the run folder and removes all but the newest `keep` checkpoints. `optimizer` is the whole state.
// Returns the new checkpoint.
std::filesystem::path save_checkpoint(const RunFolder& run, const Trainer& trainer, const Snapshot& optimizer,
                                      const RunState& state, int64_t keep);

// Writes model.safetensors, config.json and state.json to best/step-N of the run folder and removes the previous best.
void save_best(const RunFolder& run, const Trainer& trainer, const RunState& state);

struct Resumed {
  std::optional<RunState> state;  // none if no checkpoint verifies
  std::vector<io::SkippedCheckpoint> skipped;
};

// Loads the newest checkpoint that verifies into the trainer.
Resumed load_checkpoint(const RunFolder& run, Trainer& trainer);

}  // namespace prism::train
