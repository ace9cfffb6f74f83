#pragma once

#include "prism/cli/progress.h"
#include "prism/train/dataset.h"

namespace prism::cli {

std::string progress_text(const data::Progress& progress);

std::string data_line(const train::DatasetSize& data);  // "data    1,234,567 tokens an epoch, …"

// What the user should know of text that became shards: what was left out, cut or replaced. A line for each.
std::vector<std::string> remarks(const data::BuildResult& result);

// Opens the dataset of a configuration with its progress on the line, and says what it was made of when it is ready.
train::Dataset open_dataset(const io::Config& config, ProgressLine& line,
                            const std::optional<train::TrainedData>& trained = {});

}  // namespace prism::cli
