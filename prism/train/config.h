#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "prism/io/config.h"
#include "prism/model/config.h"
#include "prism/optim/options.h"
#include "prism/optim/schedule.h"

namespace prism::train {

inline constexpr const char* kAuto = "auto";                   // as a value: the program chooses
inline constexpr const char* kTorchSources = "torch-sources";  // as a path: the Python files of the installed torch

// Returns the table of all keys of `prism train` and `prism compare`. It has a key for each option of each optimizer
// (the options tables of prism/optim); the default "auto" stands for the optimizer's own default.
const io::ConfigTable& config_table();
io::Config make_config();

// The functions below convert keys to typed settings. They throw prism::Error, which names the place where the
// value was given, if a value is not allowed.
model::ModelConfig model_config(const io::Config& config, int64_t vocab);
Schedule schedule(const io::Config& config);

struct DataSource {
  std::string path;
  double weight = 1;  // passes over it per epoch
};
std::vector<DataSource> data_sources(const io::Config& config);  // data.path
double held_out_fraction(const io::Config& config);              // of the documents in data.path

struct OptimizerPair {
  std::unique_ptr<Options> matrices;  // hidden matrices: optimizer.name with its keys
  std::unique_ptr<Options> rest;      // embeddings, head, norms, biases: AdamW with the keys optimizer.aux_*
};

// Also throws prism::Error if [optimizer] has a key that the chosen optimizer does not have.
OptimizerPair optimizer_options(const io::Config& config);

// Completes a configuration: makes paths absolute, replaces "auto" in the keys of the model, the data, the schedule and
// the chosen optimizer, and sets data.vocab to the size of the tokenizer. Resets the keys of [compare], which do not
// apply to a single run.
void resolve(io::Config& config, int64_t vocab);

// Checks everything that needs neither data nor a model: numbers that must agree, the optimizer's options. Throws
// prism::Error if something is wrong.
void check(const io::Config& config);

}  // namespace prism::train
