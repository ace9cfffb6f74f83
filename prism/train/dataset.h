#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "prism/data/build.h"
#include "prism/data/sampler.h"
#include "prism/data/shards.h"
#include "prism/io/config.h"
#include "prism/text/bpe_trainer.h"
#include "prism/text/tokenizer.h"

namespace prism::train {

// The data of a run: a tokenizer and the token shards made with it.
struct Dataset {
  text::Tokenizer tokenizer;
  data::Shards train;
  data::Shards val;
  std::vector<data::SamplerOptions::Stretch> stretches = {};  // of `train`, one per path; empty if all weights are 1
  std::optional<data::BuildResult> built = {};                // set if open_dataset has just built the shards
};

// Callbacks of open_dataset; each may be empty.
struct DatasetProgress {
  std::function<void(const text::TrainerProgress&)> tokenizer;
  std::function<void(const data::Progress&)> shards;
  std::function<void(const std::string&)> note;  // a message for the user
};

// The data that a resumed run has been trained on.
struct TrainedData {
  std::string recipe;               // of the training shards
  std::filesystem::path tokenizer;  // the file in the run folder
};

// Opens the dataset that the keys of [data] describe. Folders of shards (`prism data build`) are used as they are, one
// after the other. For text, trains the tokenizer and builds the shards in `folder`, or reuses those in it if they were
// made from the same files with the same settings. If another process is preparing data in `folder`, calls `note` and
// waits.
//
// With `trained`, throws prism::Error, before it writes anything, if the text has changed. The text may be missing as
// long as `folder` holds the shards that the run was trained on.
Dataset open_dataset(const io::Config& config, const std::filesystem::path& folder,
                     const DatasetProgress& progress = {}, const std::optional<TrainedData>& trained = {});

struct DatasetSize {
  int64_t vocab = 0;
  int64_t train_tokens = 0, val_tokens = 0;
  int64_t epoch_tokens = 0;    // of the training text, each path counted `weight` times
  bool counted = true;         // false: estimated from the first 4 MB of the text
  int64_t bytes_to_write = 0;  // shards that must still be built
};
DatasetSize size_of(const Dataset& dataset);

// Returns the size of the dataset that open_dataset would return, without writing anything. Counts the tokens if the
// shards exist or the text has at most 4 MB, else estimates them from its first 4 MB: with the given tokenizer, or with
// one trained on them.
DatasetSize estimate_dataset(const io::Config& config, const std::filesystem::path& folder);

// Returns the folder of a run's tokenizer and shards: data.cache, or data in the run folder.
std::filesystem::path data_folder(const io::Config& config);

// Opens data that another process has just prepared with open_dataset and the same configuration. Does not read the
// text again.
Dataset open_prepared(const io::Config& config, const text::Tokenizer& tokenizer, const std::filesystem::path& folder);

// Returns the encoder that shards are built with. Throws prism::Error, which begins with `where`, if the tokenizer has
// no token that ends a document.
data::Encoder encoder_for(const text::Tokenizer& tokenizer, const std::string& where);

// Returns the folder of the installed torch, whose Python files "torch-sources" stands for. Throws prism::Error if
// torch was not installed as a Python package.
std::filesystem::path torch_folder();

}  // namespace prism::train
