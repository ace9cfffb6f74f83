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

// The text and the kind of device that runs are made with, as their keys have them.
struct Setup {
  std::string data;    // recipe of the shards
  std::string device;  // "cpu" or "cuda"

  bool operator==(const Setup&) const = default;
};

Setup setup_of(const std::vector<Experiment>& experiments, const train::Dataset& dataset);

RunKey key_of(const compare::PlannedRun& run, const Setup& setup);

// The run in the pool, with its spectra where the experiment records them; nullptr where there is none.
const StoredRun* find(const Pool& pool, const compare::PlannedRun& run, const Setup& setup);

// A run of some experiments that the pool lacks.
struct MissingRun {
  compare::PlannedRun run;
  std::string name;  // "PRISM lr 0.02 seed 1"
  RunKey key;
  double seconds = 0;  // what it will take, by the runs in the pool or the scale's nominal speed
};

// What an experiment still lacks: its sweep, and once a contender's sweep is complete, the other seeds at its best
// rate. `later` counts the runs that wait for that.
struct State {
  std::vector<compare::RunOutcome> outcomes;  // in the pool
  std::vector<MissingRun> missing;
  int64_t later = 0;
  bool complete() const { return missing.empty() && later == 0; }
};
State state_of(const Experiment& experiment, const Pool& pool, const Setup& setup);

// What all experiments lack, each run once: the shortest first, and of about equally long ones in the order of the
// experiments, so that one question is answered after the other.
std::vector<MissingRun> missing_runs(const std::vector<Experiment>& experiments, const Pool& pool, const Setup& setup);

// The setup most of these experiments' runs in the pool were made with; nothing where it has none.
std::optional<Setup> usual_setup(const std::vector<Experiment>& experiments, const Pool& pool);

struct RunnerProgress {
  size_t done = 0, left = 0;  // runs made in this call; known to be missing, the current one among them
  std::string name;
  train::RunProgress inner;
  double eta_s = 0;  // of the runs known to be missing
};

struct RunnerOptions {
  const std::atomic<int>* stop = nullptr;  // once not zero: save and end
  double seconds = 0;                      // to spend; 0: no limit
  bool keep_runs = false;                  // leave the folders of finished runs in the pool
  std::function<void(const RunnerProgress&)> progress;
  std::function<void(const std::string&)> note;

  // Makes runs of these names and configurations in their folders, several at a time, before they are gone through;
  // false: saved and stopped, by a signal or because `out_of_time` says so.
  using Ahead = std::function<bool(const std::vector<std::pair<std::string, io::Config>>& runs,
                                   const std::function<bool()>& out_of_time)>;
  Ahead ahead;
};

enum class RunnerEnd { Complete, OutOfTime, Interrupted };

// Makes the missing runs, in the order of `missing_runs`, until none is left or the time is over. A run that is not
// expected to end in time is not begun; one that outlasts it is saved and resumed by the next call with this pool.
RunnerEnd make_runs(const std::vector<Experiment>& experiments, Pool& pool, const train::Dataset& dataset,
                    const RunnerOptions& options);

}  // namespace prism::reproduce
