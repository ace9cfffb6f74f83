#pragma once

#include <string>
#include <vector>

#include "prism/reproduce/runner.h"

namespace prism::reproduce {

inline std::vector<Experiment> experiments(const std::string& name, const std::vector<std::string>& settings = {},
                                           const std::string& scale = "smoke") {
  return make_experiments(
      {name},
      {.scale = scale, .data = {"text.txt"}, .held_out = {}, .tokenizer = "", .device = "cpu", .settings = settings});
}

inline const Setup kSetup = {"recipe", "cpu"};

// Returns a run whose loss fell from 6 to `loss`, or that diverged at step 10 if `loss` is infinite.
inline StoredRun stored(const compare::PlannedRun& planned, double loss, double wall_seconds = 30) {
  const bool diverged = !std::isfinite(loss);
  StoredRun run;
  run.key = key_of(planned, kSetup);
  auto& summary = run.summary;
  summary.status = diverged ? train::RunStatus::Diverged : train::RunStatus::Finished;
  summary.step = 60;
  summary.tokens = 61440;
  summary.first_loss = 6;
  summary.loss = summary.val_loss = loss;
  summary.parameters = 1000;
  summary.optimizer_state_bytes = 1000;
  summary.initial_weights = "weights " + std::to_string(planned.seed);
  summary.batches = "batches " + std::to_string(planned.seed);
  summary.timing = {.seconds = 20, .step_ms = 10, .optimizer_ms = 1, .optimizer_share = 0.1};
  summary.memory.peak_bytes = 5000;
  summary.wall_seconds = wall_seconds;
  if (diverged) run.stability.diverged = {10, "stopped"};
  run.curves = {.lr = planned.lr, .seed = planned.seed, .status = summary.status};
  run.curves.train = {.step = {1, 60}, .tokens = {1024, 61440}, .seconds = {1, 20}, .loss = {6, loss}};
  run.curves.val = {.step = {60}, .tokens = {61440}, .seconds = {20}, .loss = {loss}};
  return run;
}

}  // namespace prism::reproduce
