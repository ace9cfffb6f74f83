#include <fmt/format.h>

#include <cmath>

#include "prism/compare/sentences.h"
#include "prism/compare/summary.h"
#include "prism/train/run_page.h"

namespace prism::compare {
namespace {

using report::RunStatus;

// Returns the contender's optimizer settings as text: "gamma 0.5, side right".
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

report::MeanLoss mean_loss(const Estimate& estimate) {
  if (!estimate.interval) return {estimate.mean};
  return {estimate.mean, estimate.interval->low, estimate.interval->high};
}

report::PageOptimizer page_optimizer(const Plan& plan, size_t index, const Comparison& comparison) {
  const Result &result = comparison.results[index], &baseline = comparison.results[comparison.baseline];
  report::PageOptimizer entry{.id = result.id, .label = result.label, .detail = detail_of(plan.contenders()[index])};
  for (const auto& point : result.points)
    entry.sweep.push_back(
        {point.lr, point.loss, std::isfinite(point.loss) ? RunStatus::Finished : RunStatus::Diverged});
  if (!result.sweep) return entry;
  const auto& sweep = *result.sweep;
  entry.best_lr = sweep.best.lr;
  entry.edge = sweep.edge;
  if (has_sweeps(comparison)) entry.tolerance = {sweep.low, sweep.high, sweep.low_open, sweep.high_open};
  entry.final = {mean_loss(result.final)};
  for (const auto seed : judging_seeds(plan)) {
    const auto found = result.losses.find(seed);
    if (found != result.losses.end()) entry.final->seeds.push_back({seed, found->second});
  }
  if (result.difference) entry.difference = mean_loss(*result.difference);
  const auto speedup = [](const std::optional<double>& ours, const std::optional<double>& theirs) {
    return ours && theirs && *ours > 0 ? std::optional(*theirs / *ours) : std::nullopt;
  };
  entry.tokens_to_baseline = result.tokens_to_baseline.value_or(report::kUnknown);
  entry.tokens_speedup = speedup(result.tokens_to_baseline, baseline.tokens_to_baseline);
  entry.seconds_to_baseline = result.seconds_to_baseline.value_or(report::kUnknown);
  entry.seconds_speedup = speedup(result.seconds_to_baseline, baseline.seconds_to_baseline);
  entry.step_ms = result.best_summary.timing.step_ms;
  entry.optimizer_ms = result.best_summary.timing.optimizer_ms;
  entry.memory = train::page_memory(result.best_summary);
  return entry;
}

std::vector<report::Highlight> highlights(const Comparison& comparison) {
  const auto& winner = comparison.results[comparison.winner];
  if (!winner.sweep || !std::isfinite(winner.final.mean)) return {};
  std::vector<report::Highlight> list = {{winner.label, "lowest held-out loss"},
                                         {fmt::format("{:.4f}", winner.final.mean), "its loss"}};
  if (winner.difference && std::isfinite(winner.difference->mean)) {
    const double mean = winner.difference->mean;
    list.push_back({fmt::format("{}{:.4f}", mean < 0 ? "−" : "+", std::abs(mean)),
                    "against " + comparison.results[comparison.baseline].label});
  }
  if (has_sweeps(comparison))
    list.push_back({fmt::format("×{:.2g}", winner.sweep->factor()), "range of its good rates"});
  return list;
}

report::Facts checks(const Plan& plan, const Comparison& comparison) {
  report::Facts facts{"Equal start and data (hashes shared by all runs of a seed)"};
  for (const auto seed : plan.seeds()) {
    if (!comparison.batches.contains(seed)) continue;
    facts.rows.emplace_back(fmt::format("initial weights, seed {}", seed), comparison.initial_weights.at(seed));
    facts.rows.emplace_back(fmt::format("batches, seed {}", seed), comparison.batches.at(seed));
  }
  return facts;
}

}  // namespace

report::PageDocument page_document(const Plan& plan, const Comparison& comparison, const std::vector<RunOutcome>& runs,
                                   const std::vector<report::Sample>& samples, const std::string& command) {
  report::PageDocument document;
  document.kind = report::PageKind::Compare;
  document.title = plan.folder().filename().string();
  document.summary = sentences(plan, comparison);
  document.highlights = highlights(comparison);
  document.baseline = comparison.results[comparison.baseline].id;
  document.tolerance = plan.config().real("compare.tolerance");
  document.confidence = kConfidence;
  for (size_t i = 0; i < comparison.results.size(); ++i) {
    const auto& result = comparison.results[i];
    document.optimizers.push_back(page_optimizer(plan, i, comparison));
    if (!result.best_summary.routing.empty())
      document.routing.push_back(train::page_routing(result.best_summary, result.id));
  }
  for (const auto& run : runs) {
    const auto& result = comparison.results[run.contender];
    auto& entry = document.runs.emplace_back(run.page);
    entry.optimizer = result.id;
    if (run.diverged) entry.status = RunStatus::Diverged;
    entry.best = result.sweep && result.sweep->best.lr == run.lr;
    if (!entry.best || run.seed != plan.seeds().front()) entry.spectra.clear();  // one run per optimizer is enough
  }
  document.samples = samples;
  document.facts = train::page_facts(runs.front().summary);
  document.facts.push_back(checks(plan, comparison));
  document.config = plan.config().to_toml();
  document.command = command;
  return document;
}

}  // namespace prism::compare
