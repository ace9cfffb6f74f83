#pragma once

#include <string>
#include <vector>

#include "prism/compare/analysis.h"
#include "prism/train/config.h"

namespace prism::compare {

inline Plan plan_of(const std::vector<std::string>& settings) {
  auto config = train::make_config();
  config.set("run.out=out");
  config.set("run.device=cpu");
  config.set("data.path=text.txt");
  for (const auto& setting : settings) config.set(setting);
  return Plan(config);
}

// Returns a run whose loss fell from 6 to `loss` in two evaluations, 100 tokens and 10 seconds apart. It diverged if
// `loss` is infinite.
inline RunOutcome outcome_of(const Plan& plan, size_t contender, double lr, int64_t seed, double loss) {
  const bool diverged = !std::isfinite(loss);
  RunOutcome run;
  run.contender = contender;
  run.lr = lr;
  run.seed = seed;
  run.folder = plan.run(contender, lr, seed).folder;
  run.loss = loss;
  run.diverged = diverged;
  run.eval_tokens = {100, 200};
  run.eval_seconds = {10, 20};
  run.eval_losses = {(6 + loss) / 2, loss};
  run.batches = {"first " + std::to_string(seed), "second " + std::to_string(seed)};
  run.summary.status = diverged ? train::RunStatus::Diverged : train::RunStatus::Finished;
  run.summary.step = 2;
  run.summary.tokens = 200;
  run.summary.loss = run.summary.val_loss = loss;
  run.summary.initial_weights = "weights " + std::to_string(seed);
  run.summary.final_weights = "trained";
  run.summary.batches = "all batches " + std::to_string(seed);
  run.summary.timing = {.seconds = 20, .step_ms = 10000, .optimizer_ms = 100, .optimizer_share = 0.01};
  return run;
}

}  // namespace prism::compare
