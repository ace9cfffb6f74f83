#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "prism/compare/plan.h"
#include "prism/compare/statistics.h"
#include "prism/train/run_data.h"

namespace prism::compare {

// The result of one run, read from its folder.
struct RunOutcome {
  size_t contender = 0;
  double lr = 0;
  int64_t seed = 0;
  std::filesystem::path folder;
  train::RunSummary summary;
  double loss = 0;        // last held-out loss; infinity if the run diverged
  bool diverged = false;  // stopped by the guard, or ended no better than it began
  std::vector<double> eval_tokens = {}, eval_seconds = {}, eval_losses = {};
  std::vector<std::string> batches = {};  // hash of each step's batch
  report::PageRun page = {};              // `optimizer` is empty

  train::RunStatus status() const { return diverged ? train::RunStatus::Diverged : summary.status; }
};

// The results of one contender.
struct Result {
  std::string id, label;
  std::vector<SweepPoint> points;                                 // first seed, rates ascending
  std::optional<Sweep> sweep;                                     // none if every rate diverged
  std::map<int64_t, double> losses;                               // held-out loss at the best rate, by seed
  Estimate final;                                                 // over the judging seeds
  std::optional<Estimate> difference;                             // to the baseline, paired by seed
  std::optional<double> tokens_to_baseline, seconds_to_baseline;  // first seed: to the baseline's final loss
  train::RunSummary best_summary;                                 // of the run at the best rate with the first seed
};

struct Comparison {
  std::vector<Result> results;  // in the order of the plan
  size_t baseline = 0;
  size_t winner = 0;
  std::map<int64_t, std::string> initial_weights;  // by seed: the hash that all runs share
  std::map<int64_t, std::string> batches;          // by seed: the hash of all batches of the longest run
};

// Returns true if any contender ran at more than one rate.
bool has_sweeps(const Comparison& comparison);

RunOutcome read_outcome(const PlannedRun& run);
RunOutcome outcome_of(const PlannedRun& run, const train::RunSummary& summary);  // without the course of the run

// Returns the seeds that measure the final loss: all but the first, which selects the rates, or the only one.
std::vector<int64_t> judging_seeds(const Plan& plan);

// Throws std::runtime_error if two runs of one seed began with different weights or saw different batches. Fills in the
// hashes of `comparison`.
void check_equal_start_and_data(const std::vector<RunOutcome>& runs, Comparison& comparison);

// Returns the best rate of a contender's sweep; nothing if every rate diverged.
std::optional<double> best_rate(const Plan& plan, size_t contender, const std::vector<RunOutcome>& runs);

Comparison analyze(const Plan& plan, const std::vector<RunOutcome>& runs);

}  // namespace prism::compare
