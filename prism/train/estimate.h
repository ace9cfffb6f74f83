#pragma once

#include <functional>

#include "prism/io/config.h"
#include "prism/model/config.h"
#include "prism/train/dataset.h"

namespace prism::train {

// The resources that a run will need. Sizes follow from the configuration. Time is extrapolated from a measured step of
// a smaller model on a few tokens: at most two layers and, on the CPU, narrower ones.
struct Estimate {
  model::ModelConfig model;
  int64_t step_tokens = 0, tokens = 0;  // per step and in total
  double epochs = 0;                    // passes over the training text

  struct Memory {  // bytes
    double weights = 0, gradients = 0, optimizer = 0, activations = 0;
    double total() const { return weights + gradients + optimizer + activations; }
  };
  Memory memory = {};
  double total_memory = 0;  // total memory of the machine or the GPU

  double checkpoint_bytes = 0;  // per checkpoint
  double disk_bytes = 0;        // checkpoints to keep, one more during writing, and shards to build

  double step_seconds = 0, optimizer_seconds = 0;
  double seconds = 0;  // from step `done` to the end, with evaluations and checkpoints, without spectra
};

// Estimates the rest of a run after `done` steps. The configuration must be complete (resolve). `processes` share the
// batch; the memory is that of each.
Estimate estimate(const io::Config& config, const DatasetSize& data, int64_t done = 0, int64_t processes = 1);

// Sets torch's threads and determinism from run.threads and train.deterministic.
void set_up_torch(const io::Config& config);

}  // namespace prism::train
