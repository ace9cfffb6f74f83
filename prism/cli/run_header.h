#pragma once

#include <string>
#include <vector>

#include "prism/cli/console.h"
#include "prism/io/config.h"
#include "prism/train/dataset.h"

namespace prism::cli {

std::string build_progress_text(const data::Progress& progress);

std::string data_line(const train::DatasetSize& data);  // "data    1,234,567 tokens per epoch, …"

std::string skipped_files(const data::Skipped& skipped);  // "skipped files: 3 hidden, 1 binary", or ""

// Returns a line for each way in which shards differ from their text: documents left out, cut or repaired.
std::vector<std::string> remarks(const data::BuildResult& result);

// Opens the dataset of a configuration, showing its progress, and prints what it consists of.
train::Dataset open_dataset(const io::Config& config, ProgressLine& line,
                            const std::optional<train::TrainedData>& trained = {});

// Prints model, device, rates, steps and the time, memory and disk that `runs` runs like this one will need. Warns if
// they take days or exceed the memory. `config` is complete; `done` steps of each run are behind it. `processes` share
// each step.
void announce(const io::Config& config, const train::DatasetSize& data, ProgressLine& line, int64_t done = 0,
              size_t runs = 1, int64_t processes = 1);

// Returns the complete configuration as TOML, with a comment after each value that says where it came from. `given` is
// the configuration before it was completed.
std::string annotated_toml(const io::Config& complete, const io::Config& given);

}  // namespace prism::cli
