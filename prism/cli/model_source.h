#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

#include "prism/model/qwen2.h"
#include "prism/text/tokenizer.h"

namespace prism::cli {

struct OpenedModel {
  model::Qwen2 model;
  text::Tokenizer tokenizer;
  std::filesystem::path from;        // the checkpoint or folder that was read
  std::vector<std::string> skipped;  // newer checkpoints that failed verification, and why
};

// Opens a run folder (its newest valid checkpoint), a checkpoint folder (which must be valid) or a Hugging Face folder.
// The tokenizer of a checkpoint is the run's tokenizer.json.
OpenedModel open_model(const std::filesystem::path& path, at::Device device = at::kCPU);

}  // namespace prism::cli
