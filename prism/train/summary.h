#pragma once

#include <vector>

#include "prism/train/run_data.h"
#include "prism/train/trainer.h"

namespace prism::train {

// Completes the summary of a run, which says how it ended: its course (all lines of metrics.jsonl, or some while it goes
// on), identities (hashes of initial and final weights, of all batches, of the data), costs, routing and machine.
void summarize(const std::vector<StepRecord>& metrics, const Trainer& trainer, const Dataset& dataset,
               const RunState& state, int64_t optimizer_state_bytes, RunSummary& summary);

bool ends_finite(const std::vector<StepRecord>& metrics);  // the last losses, training and held-out

double median(std::vector<double> values);  // 0 of none

}  // namespace prism::train
