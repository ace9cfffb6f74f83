#pragma once

#include <string>
#include <vector>

#include "prism/reproduce/runner.h"

namespace prism::reproduce {

// One line of an experiment's table: a contender at one rate, over its seeds.
struct Row {
  size_t contender = 0;
  std::string label;
  double lr = 0;
  bool best = false;             // the contender's best rate
  compare::Estimate train_loss;  // mean of the last training losses
  compare::Estimate held_out;    // infinite where a run diverged
  int64_t seeds = 0;
  int64_t diverged = 0;                  // runs
  std::optional<int64_t> diverged_step;  // the first
  int64_t spikes = 0;
  int64_t unrecovered = 0;         // spikes that lasted to the end
  std::string paper;               // the paper's loss; empty where it gives none
  std::vector<std::string> extra;  // of the experiment's columns; "–" where a run did not record them
  const StoredRun* run = nullptr;  // with the first seed; belongs to the pool
};

std::vector<Row> rows_of(const Experiment& experiment, const State& state, const Pool& pool, const Setup& setup);

std::string screen_table(const Experiment& experiment, const std::vector<Row>& rows);
std::string markdown_table(const Experiment& experiment, const std::vector<Row>& rows);

// What the results say, sentence by sentence, the paper's claims first; of an experiment whose runs are all there.
std::vector<std::string> verdict(const Experiment& experiment, const State& state, const std::vector<Row>& rows);

report::PageDocument page_document(const Experiment& experiment, const State& state, const std::vector<Row>& rows,
                                   const std::string& command);

// What each experiment needs, for a dry run: runs in all, in the pool, missing, and minutes.
struct PlanLine {
  std::string name, question;
  int64_t runs = 0, done = 0;
  double seconds = 0;  // of the runs that no line above has
};
std::vector<PlanLine> plan_lines(const std::vector<Experiment>& experiments, const Pool& pool, const Setup& setup);

}  // namespace prism::reproduce
