#pragma once

#include <string>
#include <vector>

#include "prism/reproduce/runner.h"

namespace prism::reproduce {

// One row of an experiment's table: a contender at one rate, over its seeds.
struct Row {
  size_t contender = 0;
  std::string label;
  double lr = 0;
  bool best = false;             // the contender's best rate
  compare::Estimate train_loss;  // mean of the last training losses
  compare::Estimate held_out;    // infinite if a run diverged
  int64_t seeds = 0;
  int64_t diverged = 0;                  // number of runs that diverged
  std::optional<int64_t> diverged_step;  // of the first run to diverge
  int64_t spikes = 0;
  int64_t unrecovered = 0;         // spikes that lasted to the end
  std::string paper;               // the paper's loss; empty if it gives none
  std::vector<std::string> extra;  // of the experiment's columns; "–" if not recorded
  const StoredRun* run = nullptr;  // of the first seed; owned by the pool
};

std::vector<Row> rows_of(const Experiment& experiment, const State& state, const Pool& pool, const Setup& setup);

// Returns the table for a terminal of `width` columns. Leaves out the less important columns if it is too wide.
std::string screen_table(const Experiment& experiment, const std::vector<Row>& rows, int64_t width);
std::string markdown_table(const Experiment& experiment, const std::vector<Row>& rows);

// Returns the results in sentences, the paper's claims first. The pool must have all runs of the experiment.
std::vector<std::string> verdict(const Experiment& experiment, const State& state, const std::vector<Row>& rows);

report::PageDocument page_document(const Experiment& experiment, const State& state, const std::vector<Row>& rows,
                                   const std::string& command);

// One line of a dry run: an experiment's runs, how many of them are in the pool, and the time for the others.
struct PlanLine {
  std::string name, question;
  int64_t runs = 0, done = 0;
  double seconds = 0;  // of the missing runs that no earlier line has
};
std::vector<PlanLine> plan_lines(const std::vector<Experiment>& experiments, const Pool& pool, const Setup& setup);

}  // namespace prism::reproduce
