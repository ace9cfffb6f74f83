#include "prism/bench/training.h"

#include <fmt/format.h>

#include <cmath>
#include <random>

#include "prism/bench/timing.h"
#include "prism/train/config.h"
#include "prism/train/machine.h"
#include "prism/train/stepper.h"
#include "prism/train/summary.h"

namespace prism::bench {
namespace {

constexpr int64_t kBatches = 4;  // used in turn

std::vector<std::vector<int64_t>> random_batches(const TrainingOptions& options) {
  std::mt19937_64 generator(1);
  std::uniform_int_distribution<int64_t> token(0, options.vocab - 1);
  std::vector<std::vector<int64_t>> batches(kBatches);
  for (auto& batch : batches) {
    batch.resize(static_cast<size_t>(options.batch * (options.context + 1)));
    for (auto& id : batch) id = token(generator);
  }
  return batches;
}

}  // namespace

TrainingOptions TrainingOptions::for_device(at::Device device) {
  if (!device.is_cpu()) return {};
  return {.preset = "demo", .vocab = 4096, .batch = 16, .context = 128};
}

std::string TrainingOptions::name() const {
  const TrainingOptions defaults;
  auto name = preset;
  if (vocab != defaults.vocab) name += fmt::format("_vocab{}", vocab);
  if (batch != defaults.batch || context != defaults.context) name += fmt::format("_{}x{}", batch, context);
  if (recompute) name += "_recompute";
  if (!graph) name += "_eager";
  return name;
}

io::Config training_config(const TrainingOptions& options, at::Device device) {
  auto config = train::make_config();
  const auto set = [&](const std::string& key, const nlohmann::json& value) { config.assign(key, value, key); };
  set("model.preset", options.preset);
  set("model.recompute", options.recompute);
  set("train.batch", options.batch);
  set("train.context", options.context);
  set("train.graph", options.graph);
  set("run.device", device.str());
  const auto& chosen = entrant(options.optimizer);
  set("optimizer.name", chosen.optimizer);
  for (const auto& [key, value] : chosen.options.items()) set("optimizer." + key, value);
  // Training changes some defaults of the optimizer. Set them back, so that an entrant is the same in every bench.
  const auto values = chosen.make_options()->to_json();
  for (const char* key : {"gamma", "side", "covariance", "coefficients", "normalize"}) {
    if (values.contains(key)) set(std::string("optimizer.") + key, values.at(key));
  }
  return config;
}

TrainingTime measure_training(const TrainingOptions& options, at::Device device, bool with_profile,
                              const std::function<void(int64_t step)>& progress) {
  const auto config = training_config(options, device);
  train::reset_peak_memory(device);
  train::Stepper stepper(config, {train::model_config(config, options.vocab), /*seed=*/1, device});
  const auto batches = random_batches(options);

  TrainingTime result{.name = options.optimizer, .tokens = stepper.step_tokens()};
  std::vector<double> step_ms, optimizer_ms;
  const auto step = [&](int64_t i) {
    stepper.launch(batches[static_cast<size_t>(i % kBatches)], /*factor=*/1);
    return stepper.finish();
  };
  for (int64_t i = 0; i < kWarmUpSteps + options.steps; ++i) {
    const auto record = step(i);
    if (!std::isfinite(record.loss)) throw std::runtime_error(fmt::format("step {}: the loss is not finite", i + 1));
    if (i == 0) result.first_loss = record.loss;
    result.last_loss = record.loss;
    if (i < kWarmUpSteps) continue;
    step_ms.push_back(record.step_ms);
    optimizer_ms.push_back(record.optimizer_ms);
    progress(i - kWarmUpSteps + 1);
  }
  result.step_ms = train::median(step_ms);
  result.optimizer_ms = train::median(optimizer_ms);
  const auto peak = train::peak_memory(device);
  result.peak_bytes = device.is_cpu() ? peak.host : peak.device;
  result.graph = stepper.is_graph();
  if (with_profile) result.profile = summarize(device, profile(device, [&] { step(0); }));
  return result;
}

nlohmann::json training_figures(const TrainingOptions& options, const std::vector<TrainingTime>& rows) {
  nlohmann::json tokens_per_s = nlohmann::json::object(), details = nlohmann::json::object();
  for (const auto& row : rows) {
    const auto name = options.name() + (row.name == TrainingOptions().optimizer ? "" : "_" + row.name);
    tokens_per_s[name] = std::round(row.tokens_per_s());
    details[name] = {{"step_ms", row.step_ms},
                     {"peak_bytes", row.peak_bytes},
                     {"first_loss", row.first_loss},
                     {"last_loss", row.last_loss},
                     {"graph", row.graph}};
    if (row.optimizer_ms) details[name]["optimizer_ms"] = *row.optimizer_ms;
  }
  return {{"tokens_per_s", tokens_per_s}, {"train", details}};
}

}  // namespace prism::bench
