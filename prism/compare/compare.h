#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "prism/compare/analysis.h"
#include "prism/compare/summary.h"
#include "prism/train/run.h"

namespace prism::compare {

struct CompareProgress {
  size_t run = 0, runs = 0;  // the current one, counted from 1, of all
  std::string name;          // "prism lr 0.02 seed 1"
  train::RunProgress inner;
  double eta_s = 0;  // over all runs
};

struct CompareOptions {
  const std::atomic<int>* stop = nullptr;
  std::function<void(const CompareProgress&)> progress;
  std::function<void(const std::string&)> note;
  std::function<void(const std::string&)> doing;  // as train::RunOptions has it
  // Makes these runs in their folders, several at a time, before they are gone through; false: saved and stopped.
  std::function<bool(const std::vector<PlannedRun>&)> ahead;
  std::string command;  // for the page: what reproduces this
};

struct CompareResult {
  bool interrupted = false;  // saved; the same call goes on with it
  Comparison comparison;
  std::vector<RunOutcome> runs;
  std::vector<report::Sample> samples;
};

// Throws prism::Error where the plan's folder holds a training run, or runs that were made with other settings. Returns
// what its runs were trained on so far. Reads and writes no data, so call it before the dataset is opened.
std::optional<train::TrainedData> check_folder(const Plan& plan);

// Runs a plan in its folder: the sweep of every contender with the first seed, then the other seeds at each one's best
// rate; runs that are complete are not run again, interrupted ones are resumed. Then writes summary.json, runs.csv and
// report.html. A folder whose runs were made with other settings is refused by key.
CompareResult compare(const Plan& plan, const train::Dataset& dataset, const CompareOptions& options);

}  // namespace prism::compare
