#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "prism/data/build.h"
#include "prism/data/shards.h"
#include "prism/io/config.h"
#include "prism/text/tokenizer.h"
#include "prism/text/trainer.h"

namespace prism::train {

// What a run trains on: a tokenizer and the token shards made with it.
struct Dataset {
  text::Tokenizer tokenizer;
  data::Shards train;
  data::Shards val;
};

// What is being done before training can begin; either may be empty.
struct DatasetProgress {
  std::function<void(const text::TrainerProgress&)> tokenizer;
  std::function<void(const data::Progress&)> shards;
};

// The dataset of the keys [data]. A folder of shards (`prism data build`) is used as it is. Of text, tokenizer.json and
// the shards are made in `folder`; what is there already is taken when it came from the same files with the same
// settings.
Dataset open_dataset(const io::Config& config, const std::filesystem::path& folder,
                     const DatasetProgress& progress = {});

data::Encoder encoder_for(const text::Tokenizer& tokenizer, const std::string& where);

// The folder of the installed torch, whose Python files "torch-sources" stands for.
std::filesystem::path torch_folder();

}  // namespace prism::train
