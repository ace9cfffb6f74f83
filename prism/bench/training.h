#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "prism/bench/optimizers.h"
#include "prism/bench/profile.h"
#include "prism/io/config.h"

namespace prism::bench {

// Settings for measuring the training steps of prism/train (loss, gradients, clipping, optimizer) on random tokens.
struct TrainingOptions {
  std::string preset = "22m";
  std::string optimizer = "prism_minimax9";  // an entrant, for the matrices; AdamW updates the rest
  int64_t vocab = kVocab, batch = 32, context = 2048;
  int64_t steps = 20;
  bool recompute = false, graph = true;

  static TrainingOptions for_device(at::Device device);  // sizes whose step takes a second or less
  std::string name() const;  // of the figures: "22m" followed by settings that are not the defaults, "22m_vocab151936"
};

// Returns the configuration of prism/train for these options.
io::Config training_config(const TrainingOptions& options, at::Device device);

struct TrainingTime {
  std::string name;    // of the optimizer
  double step_ms = 0;  // median, like optimizer_ms
  std::optional<double> optimizer_ms = std::nullopt;
  int64_t tokens = 0;  // per step
  int64_t peak_bytes = 0;
  double first_loss = 0, last_loss = 0;
  bool graph = false;                             // the steps were replayed from a CUDA graph
  std::optional<Profile> profile = std::nullopt;  // of one more step

  double tokens_per_s() const { return 1e3 * static_cast<double>(tokens) / step_ms; }
};

// Measures training steps. Calls `progress` with the number of steps done. Throws std::runtime_error if a loss is not
// finite.
TrainingTime measure_training(const TrainingOptions& options, at::Device device, bool with_profile,
                              const std::function<void(int64_t step)>& progress);

// Returns tokens_per_s.NAME and train.NAME of each row. NAME is options.name(), followed by the name of the optimizer
// unless it is the default.
nlohmann::json training_figures(const TrainingOptions& options, const std::vector<TrainingTime>& rows);

}  // namespace prism::bench
