#pragma once

#include "prism/cli/progress.h"
#include "prism/train/dataset.h"

namespace prism::cli {

std::string progress_text(const data::Progress& progress);

// Opens the dataset of a configuration with its progress on the line, and says what it is when it is ready.
train::Dataset open_dataset(const io::Config& config, ProgressLine& line,
                            const std::optional<train::TrainedData>& trained);

}  // namespace prism::cli
