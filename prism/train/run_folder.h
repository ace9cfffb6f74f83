#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "prism/io/config.h"
#include "prism/train/dataset.h"

namespace prism::train {

// What a folder holds, and what may be written into it. A folder has one kind: config.toml makes it that of a training
// run or, where it names compare.optimizers, that of a comparison.

// Returns the configuration of the run or comparison in the folder; nothing where there is none.
std::optional<io::Config> stored_config(const std::filesystem::path& folder);

// Throws prism::Error where the folder holds a comparison, or a run that is not to be resumed.
void expect_place_for_run(const std::filesystem::path& folder, bool resume);

// Throws prism::Error where the folder holds a training run.
void expect_place_for_comparison(const std::filesystem::path& folder);

// Gives the keys that `config` leaves out, and whose default has changed, the values that the run began with.
void keep_old_defaults(io::Config& config, const io::Config& stored);

// Throws prism::Error where `config` would make another run than the one its folder holds. Reads and writes no data, so
// call it before the dataset is opened.
void check_resume(const io::Config& config);

// Throws prism::Error that names the keys in which two complete configurations differ, but for those that may. The
// second is a run's own, perhaps written before the newest options existed.
void refuse_other_run(const io::Config& wanted, const io::Config& written, const std::filesystem::path& folder);

// Returns the tokenizer of the run in the folder, which ends documents with the token of its data.eos.
text::Tokenizer run_tokenizer(const std::filesystem::path& folder);

// What a run is known by while it goes on: run.json.
struct RunRecord {
  std::string data;                       // recipe of the training shards
  std::optional<std::string> checkpoint;  // name of the newest that was written, "step-00001000"
};

std::optional<RunRecord> read_record(const std::filesystem::path& folder);  // nothing where there is none
void write_record(const std::filesystem::path& folder, const RunRecord& record);

int64_t saved_step(const std::filesystem::path& folder);  // of the newest checkpoint that was written; 0: none

// Returns what the run in the folder was trained on up to its newest checkpoint; nothing where it has none.
std::optional<TrainedData> trained_data(const std::filesystem::path& folder);

}  // namespace prism::train
