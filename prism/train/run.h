#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "prism/io/config.h"
#include "prism/train/dataset.h"
#include "prism/train/run_data.h"

namespace prism::train {

struct RunProgress {
  int64_t step = 0, steps = 0;
  double loss = 0;                 // of the last step
  std::optional<double> val_loss;  // of the last evaluation
  double tokens_per_s = 0;         // over the last steps, as the two below
  double optimizer_share = 0;      // of the time of a step
  double eta_s = 0;                // evaluations, spectra and checkpoints to come included
  int64_t skipped = 0;
};

struct RunOptions {
  bool resume = false;                               // go on where the run stopped; without a checkpoint ever, begin
  const std::atomic<int>* stop = nullptr;            // once not zero: save and end after the current step
  std::function<void(const RunProgress&)> progress;  // after every step
  std::function<void(const std::string&)> note;      // what the user should read: skipped checkpoints, skipped steps
  std::function<void(const std::string&)> doing;     // what begins now and may take long: "evaluating"
};

// A whole training run in the folder run.out (its content: docs/run-folder.md). The configuration is checked, completed
// (what "auto" stood for) and written to config.toml first. A folder that holds a run is refused unless options.resume;
// what is resumed continues bit for bit, and what had checkpoints of which none verifies is refused. Resuming with
// settings that would make it another run is refused by key; checkpoint.*, metrics.*, run.*, train.steps, train.eval_*,
// train.graph, train.max_skips and train.patience may change; where another train.steps moves the learning rate, a note
// says so. report.html is written anew at every evaluation.
RunSummary run(const io::Config& config, const Dataset& dataset, const RunOptions& options);

}  // namespace prism::train
