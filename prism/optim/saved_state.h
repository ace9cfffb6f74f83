#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "prism/optim/options.h"

namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace prism {

// Optimizer state as plain values, written by save and read by load.
struct Snapshot {
  Json header;                                          // groups with options and parameter names
  std::vector<std::pair<std::string, Tensor>> tensors;  // "state.<parameter>.<field>", and counters
};

void write_archive(const Snapshot& snapshot, torch::serialize::OutputArchive& archive);
Snapshot read_archive(torch::serialize::InputArchive& archive);

void write_safetensors(const Snapshot& snapshot, const std::filesystem::path& path);
Snapshot read_safetensors(const std::filesystem::path& path);

}  // namespace prism
