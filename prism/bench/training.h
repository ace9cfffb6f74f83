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

// Whole training steps on random tokens: loss, gradients, clipping and optimizer, as prism/train does them.
struct TrainingOptions {
  std::string preset = "22m";
  std::string optimizer = "prism_minimax9";  // an entrant; AdamW takes the rest
  int64_t vocab = kVocab, batch = 32, context = 2048;
  int64_t steps = 20;
  bool recompute = false, graph = true;

  static TrainingOptions for_device(at::Device device);  // what a step of a second or less can do
  std::string name() const;  // of the figures: "22m", with sizes that are not usual, as in "22m_vocab151936"
};

// The configuration of prism/train that they stand for.
io::Config training_config(const TrainingOptions& options, at::Device device);

struct TrainingTime {
  std::string name;    // of the optimizer
  double step_ms = 0;  // medians
  std::optional<double> optimizer_ms = std::nullopt;
  int64_t tokens = 0;  // of a step
  int64_t peak_bytes = 0;
  double first_loss = 0, last_loss = 0;
  bool graph = false;                             // the steps were replayed from a CUDA graph
  std::optional<Profile> profile = std::nullopt;  // of one step more

  double tokens_per_s() const { return 1e3 * static_cast<double>(tokens) / step_ms; }
};

// `progress` hears how many steps are done. A loss that is not finite is a std::runtime_error.
TrainingTime measure_training(const TrainingOptions& options, at::Device device, bool with_profile,
                              const std::function<void(int64_t step)>& progress);

// tokens_per_s.NAME and train.NAME of each; NAME is that of the options, followed by that of the optimizer unless it is
// prism.
nlohmann::json training_figures(const TrainingOptions& options, const std::vector<TrainingTime>& rows);

}  // namespace prism::bench
