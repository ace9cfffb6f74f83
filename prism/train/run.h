#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "prism/dist/communicator.h"
#include "prism/io/config.h"
#include "prism/train/dataset.h"
#include "prism/train/run_data.h"

namespace prism::train {

struct RunProgress {
  int64_t step = 0, steps = 0;
  double loss = 0;                 // of the last step
  std::optional<double> val_loss;  // of the last evaluation
  double tokens_per_s = 0;         // over the last steps, like the next two
  double optimizer_share = 0;      // of the time of a step
  double eta_s = 0;                // seconds left, including evaluations, spectra and checkpoints
  int64_t skipped = 0;
};

struct RunOptions {
  bool resume = false;                               // continue from the newest checkpoint; if none was saved, begin
  const std::atomic<int>* stop = nullptr;            // once it is not 0, save and end after the current step
  std::function<void(const RunProgress&)> progress;  // called after every step
  std::function<void(const std::string&)> note;      // a message for the user: skipped checkpoints, skipped steps
  std::function<void(const std::string&)> doing;     // the name of work that may take long: "evaluating"
  // The processes of the run. All of them call run() with equal configurations; rank 0 alone writes the folder.
  std::shared_ptr<dist::Communicator> processes = dist::one_process();
};

// Trains in the folder run.out (docs/run-folder.md lists its files). First checks and completes the configuration
// (resolve) and writes it to config.toml. Rewrites report.html at every evaluation.
//
// A resumed run continues bit for bit. Throws prism::Error
//   if the folder holds a run and options.resume is false,
//   if the run had checkpoints and none verifies,
//   if a setting differs that would make it another run; checkpoint.*, metrics.*, run.*, data.cache, train.steps,
//     train.eval_*, train.graph, train.max_skips and train.patience may change. If another train.steps makes the
//     learning rate jump, a note says so.
RunSummary run(const io::Config& config, const Dataset& dataset, const RunOptions& options);

}  // namespace prism::train
