#pragma once

#include <functional>

#include "prism/io/config.h"
#include "prism/model/config.h"
#include "prism/train/dataset.h"

namespace prism::train {

// What a run will need. Sizes follow from the configuration; time is projected from a measured step on a few tokens of
// a model with the same layers, but at most two of them.
struct Estimate {
  model::ModelConfig model;
  int64_t step_tokens = 0, tokens = 0;  // of one step and of all
  double epochs = 0;                    // how often the training text is gone through

  struct Memory {  // bytes
    double weights = 0, gradients = 0, optimizer = 0, activations = 0;
    double total() const { return weights + gradients + optimizer + activations; }
  };
  Memory memory = {};
  double memory_there = 0;  // of the machine, or of the GPU

  double checkpoint_bytes = 0;  // of one
  double disk_bytes = 0;        // checkpoints that are kept, one more while it is written, and shards to be made

  double step_seconds = 0, optimizer_seconds = 0;
  double seconds = 0;  // from `done` steps to the end, with evaluations and checkpoints, without spectra
};

// Estimates a run with this complete configuration (resolve) on data of this size. `done` steps are behind it.
Estimate estimate(const io::Config& config, const DatasetSize& data, int64_t done = 0);

// Sets torch's threads and determinism as the configuration says.
void set_up_torch(const io::Config& config);

}  // namespace prism::train
