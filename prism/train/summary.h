#pragma once

#include <vector>

#include "prism/train/run_data.h"
#include "prism/train/trainer.h"

namespace prism::train {

// Fills in the summary of a run, all but status, stopped_early and diagnosis. `metrics` holds all lines of
// metrics.jsonl, or some of them while the run is in progress.
void summarize(const std::vector<StepRecord>& metrics, const Trainer& trainer, const Dataset& dataset,
               const RunState& state, int64_t optimizer_state_bytes, RunSummary& summary);

// Returns true if the last losses, training and held-out, are finite.
bool has_finite_losses(const std::vector<StepRecord>& metrics);

double median(std::vector<double> values);  // 0 if there are none

}  // namespace prism::train
