#include "prism/train/summary.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "prism/io/json_lines.h"
#include "prism/train/machine.h"

namespace prism::train {
namespace {

using nlohmann::json;

// The mean of the last tenth of the training losses, at most 100 of them: one batch says little.
json final_loss(const std::vector<double>& losses) {
  if (losses.empty()) return nullptr;
  const auto count = std::clamp<size_t>(losses.size() / 10, 1, 100);
  double sum = 0;
  for (auto i = losses.size() - count; i < losses.size(); ++i) sum += losses[i];
  return sum / static_cast<double>(count);
}

struct Course {
  std::vector<double> losses, step_ms, optimizer_ms;
  json val_loss, best_val_loss;
};

Course course_of(const std::vector<json>& metrics) {
  Course course;
  for (const auto& line : metrics) {
    if (line.at("loss").is_number() && !line.value("skipped", false)) course.losses.push_back(line.at("loss"));
    course.step_ms.push_back(line.at("step_ms"));
    course.optimizer_ms.push_back(line.at("optimizer_ms"));
    if (!line.contains("val_loss")) continue;
    course.val_loss = line.at("val_loss");
    const bool better =
        course.best_val_loss.is_null() || (course.val_loss.is_number() && course.val_loss < course.best_val_loss);
    if (better) course.best_val_loss = course.val_loss;
  }
  return course;
}

bool is_finite(const json& line, const char* key) { return !line.contains(key) || line.at(key).is_number(); }

json routing_of(const Routing& routing) {
  json lines = json::array();
  for (const auto& line : routing.lines()) {
    const auto& rule = routing.rules()[line.rule];
    lines.push_back(
        {{"name", line.name}, {"shape", line.shape}, {"rule", rule.label}, {"optimizer", rule.options->name()}});
  }
  return lines;
}

json sources_of(const data::Identity& identity) {
  json sources = json::array();
  for (const auto& source : identity.sources) {
    sources.push_back({{"path", source.path}, {"files", source.files}, {"bytes", source.bytes}, {"hash", source.hash}});
  }
  return sources;
}

json memory_of(at::Device device) {
  const auto peak = peak_memory(device);
  if (device.is_cpu()) return {{"of", "host"}, {"peak_bytes", peak.host}, {"host_peak_bytes", peak.host}};
  return {{"of", "device"},
          {"peak_bytes", peak.device},
          {"reserved_peak_bytes", peak.reserved},
          {"host_peak_bytes", peak.host}};
}

}  // namespace

bool ends_finite(const std::filesystem::path& metrics) {
  const auto lines = io::read_json_lines(metrics);
  return lines.empty() || (is_finite(lines.back(), "loss") && is_finite(lines.back(), "val_loss"));
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

const char* word(RunStatus status) {
  switch (status) {
    case RunStatus::kRunning:
      return "running";
    case RunStatus::kFinished:
      return "finished";
    case RunStatus::kInterrupted:
      return "interrupted";
    case RunStatus::kDiverged:
      return "diverged";
  }
  return "";
}

json summarize(const std::vector<json>& metrics, const Trainer& trainer, const Dataset& dataset, const RunState& state,
               const RunResult& result, int64_t optimizer_state_bytes) {
  const auto course = course_of(metrics);
  const auto& model = trainer.model().config();
  const double step_ms = median(course.step_ms), optimizer_ms = median(course.optimizer_ms);
  json summary = {{"status", word(result.status)},
                  {"step", state.step},
                  {"tokens", state.tokens},
                  {"first_loss", course.losses.empty() ? json() : json(course.losses.front())},
                  {"loss", final_loss(course.losses)},
                  {"val_loss", course.val_loss},
                  {"best_val_loss", course.best_val_loss},
                  {"skipped", state.skipped},
                  {"parameters", model.parameters()},
                  {"matrix_parameters", model.matrix_parameters()},
                  {"optimizer_state_bytes", optimizer_state_bytes},
                  {"initial_weights", state.initial_weights},
                  {"batches", state.batches},
                  {"routing", routing_of(trainer.optimizer().routing())},
                  {"machine", machine(trainer.model().device())}};
  summary["data"] = {{"recipe", state.data},
                     {"tokenizer", dataset.tokenizer.hash()},
                     {"vocab", dataset.tokenizer.size()},
                     {"train_tokens", dataset.train.tokens()},
                     {"val_tokens", dataset.val.tokens()},
                     {"sources", sources_of(dataset.train.identity())}};
  summary["timing"] = {{"seconds", state.seconds},
                       {"step_ms", step_ms},
                       {"optimizer_ms", optimizer_ms},
                       {"optimizer_share", step_ms > 0 ? optimizer_ms / step_ms : 0},
                       {"tokens_per_s", state.seconds > 0 ? static_cast<double>(state.tokens) / state.seconds : 0}};
  summary["memory"] = memory_of(trainer.model().device());
  if (result.status != RunStatus::kRunning) summary["final_weights"] = weights_hash(trainer.model());
  if (result.stopped_early) summary["stopped_early"] = true;
  if (!result.diagnosis.empty()) summary["diagnosis"] = result.diagnosis;
  return summary;
}

}  // namespace prism::train
