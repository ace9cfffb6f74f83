#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "prism/train/run_folder.h"

namespace prism::train {

// The singular values, largest first, of one hidden matrix in a checkpoint: of its weights and of its momentum (empty
// if the optimizer has none).
struct CheckpointMatrix {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<double> weight, momentum;
};

std::vector<CheckpointMatrix> checkpoint_spectra(const std::filesystem::path& checkpoint);

// Takes the step after a checkpoint, in memory only, on a batch from the beginning of the given text files. Returns the
// lines that this step would add to spectra.jsonl. `run` holds the config.toml and tokenizer.json of the checkpoint.
std::vector<SpectraLine> batch_spectra(const RunFolder& run, const std::filesystem::path& checkpoint,
                                       const std::vector<std::string>& text);

}  // namespace prism::train
