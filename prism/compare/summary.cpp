#include "prism/compare/summary.h"

#include <fmt/format.h>

#include <cmath>

#include "prism/compare/sentences.h"
#include "prism/io/json_fields.h"
#include "prism/train/run_fields.h"

namespace prism::compare {
namespace {

using nlohmann::json;

json to_json(const Estimate& estimate) {
  json object = {{"mean", io::to_json(estimate.mean)}};
  if (estimate.interval) object.update({{"low", estimate.interval->low}, {"high", estimate.interval->high}});
  return object;
}

json to_json(const Sweep& sweep) {
  return {{"best_lr", sweep.best.lr},
          {"edge", sweep.edge == Edge::None ? json() : io::to_json(sweep.edge)},
          {"tolerance",
           {{"low", sweep.low},
            {"high", sweep.high},
            {"factor", sweep.factor()},
            {"low_open", sweep.low_open},
            {"high_open", sweep.high_open}}}};
}

json to_json(const Result& result) {
  json object = {{"id", result.id}, {"label", result.label}, {"final", to_json(result.final)}};
  json points = json::array(), losses = json::array();
  for (const auto& point : result.points) points.push_back({{"lr", point.lr}, {"loss", io::to_json(point.loss)}});
  for (const auto& [seed, loss] : result.losses) losses.push_back({{"seed", seed}, {"loss", io::to_json(loss)}});
  object["sweep"] = points;
  object["losses"] = losses;
  if (!result.sweep) return object;
  object.update(to_json(*result.sweep));
  object["difference"] = result.difference ? to_json(*result.difference) : json();
  object["tokens_to_baseline"] = io::to_json(result.tokens_to_baseline);
  object["optimizer_state_bytes"] = result.best_summary.optimizer_state_bytes;
  object["timing"] = io::to_json(result.best_summary.timing);
  object["timing"]["seconds_to_baseline"] = io::to_json(result.seconds_to_baseline);
  object["memory"] = io::to_json(result.best_summary.memory);
  return object;
}

json by_seed(const std::map<int64_t, std::string>& hashes) {
  json object = json::object();
  for (const auto& [seed, hash] : hashes) object[std::to_string(seed)] = hash;
  return object;
}

json to_json(const Plan& plan, const RunOutcome& run) {
  return {{"optimizer", plan.contenders()[run.contender].id},
          {"lr", run.lr},
          {"seed", run.seed},
          {"status", report::word(run.status())},
          {"step", run.summary.step},
          {"tokens", run.summary.tokens},
          {"loss", io::to_json(run.summary.loss)},
          {"val_loss", io::to_json(run.summary.val_loss)},
          {"final_weights", run.summary.final_weights},
          {"folder", run.folder.filename().string()},
          {"timing", io::to_json(run.summary.timing)},
          {"memory", io::to_json(run.summary.memory)}};
}

std::string csv_number(double value) { return std::isfinite(value) ? json(value).dump() : ""; }

}  // namespace

json summary_json(const Plan& plan, const Comparison& comparison, const std::vector<RunOutcome>& runs) {
  json summary = {
      {"seeds", plan.seeds()},
      {"tolerance", plan.config().real("compare.tolerance")},
      {"confidence", kConfidence},
      {"baseline", comparison.results[comparison.baseline].id},
      {"winner", comparison.results[comparison.winner].sweep ? json(comparison.results[comparison.winner].id) : json()},
      {"initial_weights", by_seed(comparison.initial_weights)},
      {"batches", by_seed(comparison.batches)}};
  for (const auto& sentence : sentences(plan, comparison)) summary["sentences"].push_back(sentence.text);
  for (const auto& result : comparison.results) summary["optimizers"].push_back(to_json(result));
  for (const auto& run : runs) summary["runs"].push_back(to_json(plan, run));
  summary["data"] = io::to_json(runs.front().summary.data);
  summary["machine"] = io::to_json(runs.front().summary.machine);
  return summary;
}

std::string runs_csv(const Plan& plan, const std::vector<RunOutcome>& runs) {
  std::string text = "optimizer,lr,seed,status,steps,tokens,train_loss,val_loss,seconds,step_ms,optimizer_ms,folder\n";
  for (const auto& run : runs) {
    const auto& summary = run.summary;
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}\n", plan.contenders()[run.contender].id, run.lr, run.seed,
                        report::word(run.status()), summary.step, summary.tokens, csv_number(summary.loss),
                        csv_number(summary.val_loss), csv_number(summary.timing.seconds),
                        csv_number(summary.timing.step_ms), csv_number(summary.timing.optimizer_ms),
                        run.folder.filename().string());
  }
  return text;
}

}  // namespace prism::compare
