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
  size_t run = 0, runs = 0;  // number of the current run, from 1, and of all runs
  std::string name;          // "prism lr 0.02 seed 1"
  train::RunProgress inner;
  double eta_s = 0;  // seconds left of all runs
};

struct CompareOptions {
  const std::atomic<int>* stop = nullptr;
  std::function<void(const CompareProgress&)> progress;
  std::function<void(const std::string&)> note;   // see train::RunOptions
  std::function<void(const std::string&)> doing;  // see train::RunOptions
  // Runs these runs in their folders, several at a time, before `compare` reads them. Returns false if interrupted.
  std::function<bool(const std::vector<PlannedRun>&)> ahead;
  std::string command;  // shown on the page: the command that reproduces it
};

struct CompareResult {
  bool interrupted = false;  // the runs are saved; the same call continues
  Comparison comparison;
  std::vector<RunOutcome> runs;
  std::vector<report::Sample> samples;
};

// Returns the data that the runs in the plan's folder have been trained on, if any. Throws prism::Error if the folder
// holds a training run or runs with other settings. Does not touch the data, so it can be called before the dataset is
// opened.
std::optional<train::TrainedData> check_folder(const Plan& plan);

// Returns the runs of the plan that have not ended, the next one first. Until the sweep is complete, the other seeds'
// runs are planned at each contender's lowest rate, because the best one is not yet known.
std::vector<PlannedRun> runs_left(const Plan& plan);

// Runs a plan in its folder: first every contender at every rate with the first seed, then each at its best rate with
// the other seeds. Skips complete runs and resumes interrupted ones. Then writes summary.json, runs.csv and
// report.html. Throws prism::Error if the folder holds runs with other settings; the message names the keys.
CompareResult compare(const Plan& plan, const train::Dataset& dataset, const CompareOptions& options);

}  // namespace prism::compare
