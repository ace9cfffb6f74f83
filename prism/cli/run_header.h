#pragma once

#include <string>
#include <vector>

#include "prism/cli/console.h"
#include "prism/io/config.h"
#include "prism/train/dataset.h"
#include "prism/train/estimate.h"

namespace prism::cli {

std::string progress_text(const data::Progress& progress);

std::string data_line(const train::DatasetSize& data);  // "data    1,234,567 tokens an epoch, …"

std::string skipped_files(const data::Skipped& skipped);  // "skipped files: 3 hidden, 1 binary"; empty where none were

// What the user should know of text that became shards: what was left out, cut or replaced. A line for each.
std::vector<std::string> remarks(const data::BuildResult& result);

// Opens the dataset of a configuration with its progress on the line, and says what it was made of when it is ready.
train::Dataset open_dataset(const io::Config& config, ProgressLine& line,
                            const std::optional<train::TrainedData>& trained = {});

// What opens a run, after the lines about its data: model, device, rates, steps, and what it will need. `config` is
// complete; `runs` such runs are to be made.
std::vector<std::string> run_header(const io::Config& config, const train::DatasetSize& data,
                                    const train::Estimate& estimate, size_t runs = 1);

// What the user should consider before it starts: days of training, more memory than there is.
std::vector<std::string> run_warnings(const io::Config& config, const train::Estimate& estimate, size_t runs = 1);

// The complete configuration as TOML, each value with a comment that says where it came from: `given` is the same
// configuration before it was completed.
std::string annotated_toml(const io::Config& complete, const io::Config& given);

}  // namespace prism::cli
