#include <fmt/format.h>

#include <cmath>

#include "prism/compare/sentences.h"
#include "prism/compare/summary.h"
#include "prism/train/run_page.h"

namespace prism::compare {
namespace {

using nlohmann::json;

// The settings that set it apart from the others, in a few words.
std::string detail_of(const Contender& contender) {
  std::string text;
  const auto section = contender.config.section("optimizer");
  for (const auto& [key, value] : section.items()) {
    const auto name = "optimizer." + key;
    if (!contender.config.is_given(name) || key == "name" || key == "lr" || key.starts_with("aux_") || value == "auto")
      continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key,
                        value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text;
}

json page_optimizer(const Plan& plan, size_t index, const Comparison& comparison) {
  const Result &result = comparison.results[index], &baseline = comparison.results[comparison.baseline];
  const Contender& contender = plan.contenders()[index];
  json entry = {{"id", result.id}, {"label", result.label}};
  if (const auto detail = detail_of(contender); !detail.empty()) entry["detail"] = detail;
  for (const auto& point : result.points) {
    entry["sweep"].push_back({{"lr", point.lr},
                              {"loss", finite_or_null(point.loss)},
                              {"status", std::isfinite(point.loss) ? "finished" : "diverged"}});
  }
  if (!result.sweep) return entry;
  const auto& sweep = *result.sweep;
  entry["best_lr"] = sweep.best.lr;
  entry["edge"] = to_json(sweep.edge);
  if (has_sweeps(comparison))
    entry["tolerance"] = {
        {"low", sweep.low}, {"high", sweep.high}, {"low_open", sweep.low_open}, {"high_open", sweep.high_open}};
  entry["final"] = to_json(result.final);
  entry["final"]["seeds"] = json::array();
  for (const auto seed : judging_seeds(plan)) {
    const auto found = result.losses.find(seed);
    if (found != result.losses.end())
      entry["final"]["seeds"].push_back({{"seed", seed}, {"loss", finite_or_null(found->second)}});
  }
  if (result.difference) entry["difference"] = to_json(*result.difference);
  const auto add_time = [&](const char* key, const char* speedup, const std::optional<double>& ours,
                            const std::optional<double>& theirs) {
    entry[key] = ours ? json(*ours) : json();
    if (ours && theirs && *ours > 0) entry[speedup] = *theirs / *ours;
  };
  add_time("tokens_to_baseline", "tokens_speedup", result.tokens_to_baseline, baseline.tokens_to_baseline);
  add_time("seconds_to_baseline", "seconds_speedup", result.seconds_to_baseline, baseline.seconds_to_baseline);
  entry["step_ms"] = result.best_summary.at("timing").at("step_ms");
  entry["optimizer_ms"] = result.best_summary.at("timing").at("optimizer_ms");
  entry["memory"] = train::page_memory(result.best_summary);
  return entry;
}

json highlights(const Comparison& comparison) {
  const auto& winner = comparison.results[comparison.winner];
  if (!winner.sweep || !std::isfinite(winner.final.mean)) return json::array();
  json list = {{{"value", winner.label}, {"label", "lowest held-out loss"}},
               {{"value", fmt::format("{:.4f}", winner.final.mean)}, {"label", "its loss"}}};
  if (winner.difference && std::isfinite(winner.difference->mean))
    list.push_back({{"value", fmt::format("{:+.4f}", winner.difference->mean)},
                    {"label", "against " + comparison.results[comparison.baseline].label}});
  if (has_sweeps(comparison))
    list.push_back({{"value", fmt::format("×{:.2g}", winner.sweep->factor())}, {"label", "range of its good rates"}});
  return list;
}

json checks(const Plan& plan, const Comparison& comparison) {
  json rows = json::array();
  for (const auto seed : plan.seeds()) {
    if (!comparison.batches.contains(seed)) continue;
    rows.push_back({fmt::format("initial weights, seed {}", seed), comparison.initial_weights.at(seed)});
    rows.push_back({fmt::format("batches, seed {}", seed), comparison.batches.at(seed)});
  }
  return {{"title", "Equal start and data (hashes shared by all runs of a seed)"}, {"rows", rows}};
}

}  // namespace

json page_document(const Plan& plan, const Comparison& comparison, const std::vector<RunOutcome>& runs,
                   const std::vector<Sample>& samples, const std::string& command) {
  json document = {{"kind", "compare"},
                   {"title", plan.folder().filename().string()},
                   {"baseline", comparison.results[comparison.baseline].id},
                   {"tolerance", plan.config().real("compare.tolerance")},
                   {"confidence", kConfidence},
                   {"highlights", highlights(comparison)},
                   {"config", plan.config().to_toml()},
                   {"command", command}};
  for (const auto& sentence : sentences(plan, comparison))
    document["summary"].push_back({{"text", sentence.text}, {"tone", sentence.tone}});
  for (size_t i = 0; i < comparison.results.size(); ++i) {
    const auto& result = comparison.results[i];
    document["optimizers"].push_back(page_optimizer(plan, i, comparison));
    if (result.sweep && result.best_summary.contains("routing"))
      document["routing"].push_back(train::page_routing(result.best_summary, result.id));
  }
  for (const auto& run : runs) {
    const auto& result = comparison.results[run.contender];
    auto entry = run.page;
    entry["optimizer"] = result.id;
    if (run.diverged) entry["status"] = "diverged";
    const bool best = result.sweep && result.sweep->best.lr == run.lr;
    if (best) entry["best"] = true;
    if (!best || run.seed != plan.seeds().front()) entry.erase("spectra");  // one run each shows the mechanism
    document["runs"].push_back(std::move(entry));
  }
  for (const auto& sample : samples)
    document["samples"].push_back({{"optimizer", sample.optimizer}, {"prompt", sample.prompt}, {"text", sample.text}});
  document["facts"] = train::page_facts(runs.front().summary);
  document["facts"].push_back(checks(plan, comparison));
  return document;
}

}  // namespace prism::compare
