#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "prism/train/run_folder.h"

namespace prism::train {

// What a checkpoint says of one hidden matrix: singular values, largest first, of the weights and of the momentum
// (empty where the optimizer has none).
struct CheckpointMatrix {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<double> weight, momentum;
};

std::vector<CheckpointMatrix> checkpoint_spectra(const std::filesystem::path& checkpoint);

// The lines of spectra.jsonl that the next step of a checkpoint would have, were its batch the beginning of the given
// text files. The step is taken in memory only. `run` is the folder whose config.toml and tokenizer.json the checkpoint
// belongs to.
std::vector<SpectraLine> batch_spectra(const RunFolder& run, const std::filesystem::path& checkpoint,
                                       const std::vector<std::string>& text);

}  // namespace prism::train
