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

// A run that fell from 6 to `loss`; infinity: it diverged at step 10.
inline StoredRun stored(const compare::PlannedRun& planned, double loss, double wall_seconds = 30) {
  using nlohmann::json;
  const bool diverged = !std::isfinite(loss);
  const json value = diverged ? json() : json(loss);
  StoredRun run;
  run.key = key_of(planned, kSetup);
  run.summary = {{"status", diverged ? "diverged" : "finished"},
                 {"step", 60},
                 {"tokens", 61440},
                 {"first_loss", 6},
                 {"loss", value},
                 {"val_loss", value},
                 {"parameters", 1000},
                 {"initial_weights", "weights " + std::to_string(planned.seed)},
                 {"batches", "batches " + std::to_string(planned.seed)},
                 {"optimizer_state_bytes", 1000},
                 {"timing", {{"seconds", 20}, {"step_ms", 10}, {"optimizer_ms", 1}, {"optimizer_share", 0.1}}},
                 {"memory", {{"peak_bytes", 5000}}},
                 {"data",
                  {{"recipe", "recipe"},
                   {"sources", json::array()},
                   {"train_tokens", 1000000},
                   {"val_tokens", 1000},
                   {"vocab", 2048},
                   {"tokenizer", "hash"}}},
                 {"machine", {{"cpu", "one"}}},
                 {"wall_seconds", wall_seconds}};
  run.stability = {{"diverged", nullptr}, {"spikes", json::array()}};
  if (diverged) run.stability["diverged"] = {{"step", 10}, {"reason", "stopped"}};
  run.norms = json::object();
  run.curves = {{"lr", planned.lr},
                {"seed", planned.seed},
                {"status", run.summary.at("status")},
                {"train", {{"step", {1, 60}}, {"tokens", {1024, 61440}}, {"seconds", {1, 20}}, {"loss", {6.0, value}}}},
                {"val", {{"step", {60}}, {"tokens", {61440}}, {"seconds", {20}}, {"loss", {value}}}}};
  return run;
}

}  // namespace prism::reproduce
