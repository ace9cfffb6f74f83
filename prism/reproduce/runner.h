#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "prism/compare/analysis.h"
#include "prism/reproduce/experiment.h"
#include "prism/reproduce/pool.h"
#include "prism/train/run.h"

namespace prism::reproduce {

// The text and the kind of device of runs, as in their keys.
struct Setup {
  std::string data;    // recipe of the shards
  std::string device;  // "cpu" or "cuda"

  bool operator==(const Setup&) const = default;
};

Setup setup_of(const std::vector<Experiment>& experiments, const train::Dataset& dataset);

RunKey key_of(const compare::PlannedRun& run, const Setup& setup);

// Returns the run in the pool. Returns nullptr if there is none, or if it lacks spectra that the experiment records.
const StoredRun* find(const Pool& pool, const compare::PlannedRun& run, const Setup& setup);

// A run that an experiment needs and the pool lacks.
struct MissingRun {
  compare::PlannedRun run;
  std::string name;  // "PRISM lr 0.02 seed 1"
  RunKey key;
  double seconds = 0;  // estimated from runs in the pool, or from the scale's nominal speed
};

// The runs of an experiment that the pool has, and those it lacks. First comes the sweep; once a contender's sweep is
// complete, its other seeds at its best rate. `later` counts the seeds that still wait for a sweep.
struct State {
  std::vector<compare::RunOutcome> outcomes;  // in the pool
  std::vector<MissingRun> missing;
  int64_t later = 0;
  bool complete() const { return missing.empty() && later == 0; }
};
State state_of(const Experiment& experiment, const Pool& pool, const Setup& setup);

// Returns the runs that the experiments lack, each once, the shortest first. Runs of about equal length keep the order
// of the experiments, so that one question is answered after the other.
std::vector<MissingRun> missing_runs(const std::vector<Experiment>& experiments, const Pool& pool, const Setup& setup);

// Returns the setup of most of these experiments' runs in the pool, or nullopt if it has none.
std::optional<Setup> most_common_setup(const std::vector<Experiment>& experiments, const Pool& pool);

struct RunnerProgress {
  size_t done = 0, left = 0;  // runs finished in this call; runs known to be missing, including this one
  std::string name;
  train::RunProgress inner;
  double eta_s = 0;  // of all runs known to be missing
};

struct RunnerOptions {
  const std::atomic<int>* stop = nullptr;  // once not zero: save and stop
  double seconds = 0;                      // time limit; 0: none
  bool keep_runs = false;                  // keep the folders of finished runs
  std::function<void(const RunnerProgress&)> progress;
  std::function<void(const std::string&)> note;

  // Trains runs (name and configuration) in their folders, several at a time, before they are stored one by one.
  // Returns false if a signal or `out_of_time` stopped it; unfinished runs are then saved.
  using Ahead = std::function<bool(const std::vector<std::pair<std::string, io::Config>>& runs,
                                   const std::function<bool()>& out_of_time)>;
  Ahead ahead;
};

enum class RunnerEnd { Complete, OutOfTime, Interrupted };

// Makes the missing runs in the order of `missing_runs` until none is left or time runs out. A run that is not expected
// to finish in time is not started; one that takes longer is saved, and the next call with this pool resumes it.
RunnerEnd make_runs(const std::vector<Experiment>& experiments, Pool& pool, const train::Dataset& dataset,
                    const RunnerOptions& options);

}  // namespace prism::reproduce
