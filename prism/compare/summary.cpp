#include "prism/compare/summary.h"

#include <fmt/format.h>

#include <cmath>

#include "prism/compare/sentences.h"

namespace prism::compare {

using nlohmann::json;

json finite_or_null(double value) { return std::isfinite(value) ? json(value) : json(); }

json to_json(const Estimate& estimate) {
  json object = {{"mean", finite_or_null(estimate.mean)}};
  if (estimate.interval) object.update({{"low", estimate.interval->low}, {"high", estimate.interval->high}});
  return object;
}

json to_json(Edge edge) { return edge == Edge::kNone ? json() : json(edge == Edge::kLow ? "low" : "high"); }

namespace {

json or_null(const std::optional<double>& value) { return value ? json(*value) : json(); }

json to_json(const Sweep& sweep) {
  return {{"best_lr", sweep.best.lr},
          {"edge", to_json(sweep.edge)},
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
  for (const auto& point : result.points) points.push_back({{"lr", point.lr}, {"loss", finite_or_null(point.loss)}});
  for (const auto& [seed, loss] : result.losses) losses.push_back({{"seed", seed}, {"loss", finite_or_null(loss)}});
  object["sweep"] = points;
  object["losses"] = losses;
  if (!result.sweep) return object;
  object.update(to_json(*result.sweep));
  object["difference"] = result.difference ? to_json(*result.difference) : json();
  object["tokens_to_baseline"] = or_null(result.tokens_to_baseline);
  object["optimizer_state_bytes"] = result.best_summary.at("optimizer_state_bytes");
  object["timing"] = result.best_summary.at("timing");
  object["timing"]["seconds_to_baseline"] = or_null(result.seconds_to_baseline);
  object["memory"] = result.best_summary.at("memory");
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
          {"status", run.diverged ? "diverged" : run.summary.at("status").get<std::string>()},
          {"step", run.summary.at("step")},
          {"tokens", run.summary.at("tokens")},
          {"loss", run.summary.at("loss")},
          {"val_loss", run.summary.at("val_loss")},
          {"final_weights", run.summary.at("final_weights")},
          {"folder", run.folder.filename().string()},
          {"timing", run.summary.at("timing")},
          {"memory", run.summary.at("memory")}};
}

std::string csv_number(const json& value) { return value.is_null() ? "" : value.dump(); }

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
  summary["data"] = runs.front().summary.at("data");
  summary["machine"] = runs.front().summary.at("machine");
  return summary;
}

std::string runs_csv(const Plan& plan, const std::vector<RunOutcome>& runs) {
  std::string text = "optimizer,lr,seed,status,steps,tokens,train_loss,val_loss,seconds,step_ms,optimizer_ms,folder\n";
  for (const auto& run : runs) {
    const auto& timing = run.summary.at("timing");
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}\n", plan.contenders()[run.contender].id, run.lr, run.seed,
                        run.diverged ? "diverged" : run.summary.at("status").get<std::string>(),
                        csv_number(run.summary.at("step")), csv_number(run.summary.at("tokens")),
                        csv_number(run.summary.at("loss")), csv_number(run.summary.at("val_loss")),
                        csv_number(timing.at("seconds")), csv_number(timing.at("step_ms")),
                        csv_number(timing.at("optimizer_ms")), run.folder.filename().string());
  }
  return text;
}

}  // namespace prism::compare
