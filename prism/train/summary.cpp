#include "prism/train/summary.h"

#include <algorithm>
#include <cmath>

#include "prism/train/machine.h"

namespace prism::train {
namespace {

// The mean of the last tenth of the training losses, at most 100 of them, because a single batch is noisy.
double final_loss(const std::vector<double>& losses) {
  if (losses.empty()) return report::kUnknown;
  const auto count = std::clamp<size_t>(losses.size() / 10, 1, 100);
  double sum = 0;
  for (auto i = losses.size() - count; i < losses.size(); ++i) sum += losses[i];
  return sum / static_cast<double>(count);
}

void add_losses_and_timing(const std::vector<StepRecord>& metrics, RunSummary& summary) {
  std::vector<double> losses, step_ms, optimizer_ms;
  for (const auto& record : metrics) {
    if (std::isfinite(record.loss) && !record.skipped) losses.push_back(record.loss);
    step_ms.push_back(record.step_ms);
    optimizer_ms.push_back(record.optimizer_ms);
    if (!record.val_loss) continue;
    summary.val_loss = *record.val_loss;
    if (!std::isfinite(summary.best_val_loss) || summary.val_loss < summary.best_val_loss)
      summary.best_val_loss = summary.val_loss;
  }
  if (!losses.empty()) summary.first_loss = losses.front();
  summary.loss = final_loss(losses);
  auto& timing = summary.timing;
  timing.step_ms = median(step_ms);
  timing.optimizer_ms = median(optimizer_ms);
  timing.optimizer_share = timing.step_ms > 0 ? timing.optimizer_ms / timing.step_ms : 0;
}

void add_routing(const Routing& routing, RunSummary& summary) {
  for (const auto& line : routing.lines()) {
    const auto& rule = routing.rules()[line.rule];
    summary.routing.push_back({line.name, line.shape, rule.label, rule.options->name()});
  }
}

void add_data(const Dataset& dataset, const RunState& state, RunSummary& summary) {
  summary.data = {.recipe = state.data,
                  .tokenizer = dataset.tokenizer.hash(),
                  .vocab = dataset.tokenizer.size(),
                  .train_tokens = dataset.train.tokens(),
                  .val_tokens = dataset.val.tokens(),
                  .sources = {},
                  .unigram_entropy = {}};
  for (const auto& source : dataset.train.identity().sources)
    summary.data.sources.push_back({source.path, source.files, static_cast<int64_t>(source.bytes), source.hash});
}

RunSummary::Memory used_memory(at::Device device) {
  const auto peak = peak_memory(device);
  if (device.is_cpu()) return {"host", peak.host, {}, peak.host};
  return {"device", peak.device, peak.reserved, peak.host};
}

}  // namespace

bool has_finite_losses(const std::vector<StepRecord>& metrics) {
  return metrics.empty() || (std::isfinite(metrics.back().loss) && std::isfinite(metrics.back().val_loss.value_or(0)));
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

void summarize(const std::vector<StepRecord>& metrics, const Trainer& trainer, const Dataset& dataset,
               const RunState& state, int64_t optimizer_state_bytes, RunSummary& summary) {
  const auto& model = trainer.model().config();
  const auto device = trainer.model().device();
  summary.step = state.step;
  summary.tokens = state.tokens;
  summary.skipped = state.skipped;
  summary.parameters = model.parameters();
  summary.matrix_parameters = model.matrix_parameters();
  summary.optimizer_state_bytes = optimizer_state_bytes;
  summary.initial_weights = state.initial_weights;
  if (summary.status != RunStatus::Running) summary.final_weights = weights_hash(trainer.model());
  summary.batches = state.batches;
  summary.timing.seconds = state.seconds;
  summary.timing.tokens_per_s = state.seconds > 0 ? static_cast<double>(state.tokens) / state.seconds : 0;
  add_losses_and_timing(metrics, summary);
  add_routing(trainer.optimizer().routing(), summary);
  add_data(dataset, state, summary);
  summary.machine = machine(device);
  summary.memory = used_memory(device);
}

}  // namespace prism::train
