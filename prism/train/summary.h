#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "prism/train/checkpoint.h"
#include "prism/train/run.h"

namespace prism::train {

// What summary.json says of a run: its course (lines of metrics.jsonl: all, or some while it goes on), identities
// (hashes of initial and final weights, of all batches, of the data), costs, routing and machine. Under "timing" and
// "memory" is what differs from run to run, as does the machine's "date"; all else is the same for the same
// configuration.
nlohmann::json summarize(const std::vector<nlohmann::json>& metrics, const Trainer& trainer, const Dataset& dataset,
                         const RunState& state, const RunResult& result, int64_t optimizer_state_bytes);

bool ends_finite(const std::filesystem::path& metrics);  // the last losses in metrics.jsonl, training and held-out

double median(std::vector<double> values);  // 0 of none

const char* word(RunStatus status);  // "running", "finished", "interrupted", "diverged"

}  // namespace prism::train
