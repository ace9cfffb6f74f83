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

// What a run trains on: a tokenizer and the token shards made with it.
struct Dataset {
  text::Tokenizer tokenizer;
  data::Shards train;
  data::Shards val;
  std::vector<data::SamplerOptions::Stretch> stretches = {};  // of `train`, one for each path; empty: all weights are 1
  std::optional<data::BuildResult> built = {};                // where the shards were made just now
};

// What is being done before training can begin; each may be empty.
struct DatasetProgress {
  std::function<void(const text::TrainerProgress&)> tokenizer;
  std::function<void(const data::Progress&)> shards;
  std::function<void(const std::string&)> note;  // what the user should read
};

// What a run that is resumed was trained on so far.
struct TrainedData {
  std::string recipe;               // of the training shards
  std::filesystem::path tokenizer;  // the file in the run folder
};

// Returns the dataset of the keys [data]. Folders of shards (`prism data build`) are used as they are, one after the
// other. Of text, the tokenizer and the shards are made in `folder`; what is there already is taken when it came from
// the same files with the same settings. Where another process is making them in the same folder, waits for it and says
// so (`note`). With `trained`, throws prism::Error before anything is written where the text
// is no longer the same; text that is gone is not needed while the shards in `folder` are those that were trained on.
Dataset open_dataset(const io::Config& config, const std::filesystem::path& folder,
                     const DatasetProgress& progress = {}, const std::optional<TrainedData>& trained = {});

// How much data a run will have.
struct DatasetSize {
  int64_t vocab = 0;
  int64_t train_tokens = 0, val_tokens = 0;
  int64_t epoch_tokens = 0;    // of the training text, with the weights of its paths
  bool counted = true;         // else estimated from the first megabytes of the text
  int64_t bytes_to_write = 0;  // of shards that are not made yet
};
DatasetSize size_of(const Dataset& dataset);

// Returns the size of the dataset that open_dataset would make, and makes nothing. Counted where the shards are there,
// else estimated.
DatasetSize foresee_dataset(const io::Config& config, const std::filesystem::path& folder);

// The folder of a run's tokenizer and shards: data.cache, or data in the run folder.
std::filesystem::path data_folder(const io::Config& config);

// Opens data that open_dataset has made of the same configuration just now, for another process, without reading the
// text again.
Dataset open_prepared(const io::Config& config, const text::Tokenizer& tokenizer, const std::filesystem::path& folder);

data::Encoder encoder_for(const text::Tokenizer& tokenizer, const std::string& where);

// The folder of the installed torch, whose Python files "torch-sources" stands for.
std::filesystem::path torch_folder();

}  // namespace prism::train
