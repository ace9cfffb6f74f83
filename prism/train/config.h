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

inline constexpr const char* kAuto = "auto";  // as a value: left to the program

// Every key of `prism train` and `prism compare`. The keys of [optimizer] are made from the options tables of
// prism/optim, so each option of each optimizer is there, with "auto" (the optimizer's own default) as its default.
const io::ConfigTable& config_table();
io::Config make_config();

// What the keys stand for. A value that cannot be is a prism::Error that says where it was given.
model::ModelConfig model_config(const io::Config& config, int64_t vocab);
Schedule schedule(const io::Config& config);
inline constexpr const char* kTorchSources = "torch-sources";  // as a path: the Python files of the installed torch

struct DataSource {
  std::string path;
  double weight = 1;  // how often an epoch goes through it
};
std::vector<DataSource> data_sources(const io::Config& config);  // data.path
double held_out_fraction(const io::Config& config);              // of the documents of data.path

struct OptimizerPair {
  std::unique_ptr<Options> matrices;  // hidden matrices: optimizer.name with its keys
  std::unique_ptr<Options> rest;      // embeddings, head, norms, biases: AdamW with the keys optimizer.aux_*
};

// A key of [optimizer] that the chosen optimizer does not have is refused by name.
OptimizerPair optimizer_options(const io::Config& config);

// Makes paths absolute and writes what "auto" stood for into the configuration: model numbers, the chosen optimizer's
// options, context, decay, and the vocabulary of the tokenizer that was found or trained. Drops the keys of [compare],
// which concern no single run.
void resolve(io::Config& config, int64_t vocab);

// Checks what needs no data and no model: numbers that must fit together, the optimizer's options.
void check(const io::Config& config);

}  // namespace prism::train
