#include "prism/compare/analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "prism/io/error.h"
#include "prism/train/run_page.h"

namespace prism::compare {
namespace {

const RunOutcome* find(const std::vector<RunOutcome>& runs, size_t contender, double lr, int64_t seed) {
  for (const auto& run : runs) {
    if (run.contender == contender && run.lr == lr && run.seed == seed) return &run;
  }
  return nullptr;
}

std::vector<SweepPoint> points_of(const Plan& plan, size_t contender, const std::vector<RunOutcome>& runs) {
  std::vector<SweepPoint> points;
  for (const double lr : plan.contenders()[contender].rates) {
    if (const auto* run = find(runs, contender, lr, plan.seeds().front())) points.push_back({lr, run->loss});
  }
  return points;
}

Result result_of(const Plan& plan, size_t contender, const std::vector<RunOutcome>& runs) {
  Result result;
  result.id = plan.contenders()[contender].id;
  result.label = plan.contenders()[contender].label;
  result.points = points_of(plan, contender, runs);
  result.sweep = analyze_sweep(result.points, plan.config().real("compare.tolerance"));
  if (!result.sweep) {
    result.final.mean = kInfinity;
    return result;
  }
  for (const auto seed : plan.seeds()) {
    if (const auto* run = find(runs, contender, result.sweep->best.lr, seed)) result.losses[seed] = run->loss;
  }
  std::vector<double> judged;
  for (const auto seed : judging_seeds(plan)) {
    if (result.losses.contains(seed)) judged.push_back(result.losses.at(seed));
  }
  result.final = judged.empty() ? Estimate{result.sweep->best.loss, {}} : mean_with_interval(judged);
  result.best_summary = find(runs, contender, result.sweep->best.lr, plan.seeds().front())->summary;
  return result;
}

size_t best_of(const std::vector<Result>& results, const std::vector<size_t>& among) {
  return *std::min_element(among.begin(), among.end(),
                           [&](size_t a, size_t b) { return results[a].final.mean < results[b].final.mean; });
}

size_t baseline_of(const Plan& plan, const std::vector<Result>& results) {
  const auto wanted = plan.config().string("compare.baseline");
  std::vector<size_t> others, all;
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].id == wanted) return i;
    if (!plan.contenders()[i].config.is("optimizer.name", "prism")) others.push_back(i);
    all.push_back(i);
  }
  return best_of(results, others.empty() ? all : others);
}

void compare_with_baseline(const Plan& plan, const std::vector<RunOutcome>& runs, const Result& baseline,
                           size_t contender, Result& result) {
  if (!result.sweep || !baseline.sweep) return;
  std::vector<double> differences;
  for (const auto seed : judging_seeds(plan)) {
    if (result.losses.contains(seed) && baseline.losses.contains(seed))
      differences.push_back(result.losses.at(seed) - baseline.losses.at(seed));
  }
  if (!differences.empty() && &result != &baseline) result.difference = mean_with_interval(differences);
  const auto* run = find(runs, contender, result.sweep->best.lr, plan.seeds().front());
  result.tokens_to_baseline = first_crossing(run->eval_tokens, run->eval_losses, baseline.sweep->best.loss);
  result.seconds_to_baseline = first_crossing(run->eval_seconds, run->eval_losses, baseline.sweep->best.loss);
}

}  // namespace

std::vector<int64_t> judging_seeds(const Plan& plan) {
  const auto& seeds = plan.seeds();
  return seeds.size() == 1 ? seeds : std::vector<int64_t>(seeds.begin() + 1, seeds.end());
}

bool has_sweeps(const Comparison& comparison) {
  return std::ranges::any_of(comparison.results, [](const Result& result) { return result.points.size() > 1; });
}

RunOutcome outcome_of(const PlannedRun& planned, const train::RunSummary& summary) {
  RunOutcome outcome{.contender = planned.contender,
                     .lr = planned.lr,
                     .seed = planned.seed,
                     .folder = planned.folder,
                     .summary = summary};
  const double first = finite_or_infinity(summary.first_loss), last = finite_or_infinity(summary.val_loss);
  outcome.diverged = summary.status == train::RunStatus::Diverged || !(last < first);
  outcome.loss = outcome.diverged ? kInfinity : last;
  return outcome;
}

RunOutcome read_outcome(const PlannedRun& planned) {
  const train::RunFolder folder{planned.folder};
  const auto data = folder.data();
  if (const auto lines = static_cast<int64_t>(data.metrics.size()); lines != data.summary.step)
    throw Error(fmt::format("{}: expected a line for each of {} steps, got {}; remove {} to repeat this run",
                            folder.metrics_file().string(), data.summary.step, lines, planned.folder.string()));
  auto outcome = outcome_of(planned, data.summary);
  outcome.page = train::page_run(folder, data);
  for (const auto& record : data.metrics) {
    outcome.batches.push_back(record.batch);
    if (!record.val_loss) continue;
    outcome.eval_tokens.push_back(static_cast<double>(record.tokens));
    outcome.eval_seconds.push_back(record.seconds);
    outcome.eval_losses.push_back(finite_or_infinity(*record.val_loss));
  }
  return outcome;
}

void check_equal_start_and_data(const std::vector<RunOutcome>& runs, Comparison& comparison) {
  std::map<int64_t, const RunOutcome*> longest;
  for (const auto& run : runs) {
    auto& reference = longest[run.seed];
    if (reference == nullptr) reference = &run;
    const auto differ = [&](const char* what) {
      throw std::runtime_error(fmt::format("the comparison is invalid: {} and {} {} although both have seed {}",
                                           reference->folder.filename().string(), run.folder.filename().string(), what,
                                           run.seed));
    };
    if (run.summary.initial_weights != reference->summary.initial_weights) differ("began with different weights");
    const auto steps = std::min(run.batches.size(), reference->batches.size());
    if (!std::equal(run.batches.begin(), run.batches.begin() + static_cast<std::ptrdiff_t>(steps),
                    reference->batches.begin()))
      differ("saw different batches");
    if (run.batches.size() != reference->batches.size() && run.summary.status == train::RunStatus::Finished &&
        reference->summary.status == train::RunStatus::Finished)
      differ("were trained for different numbers of steps");
    if (run.batches.size() > reference->batches.size()) reference = &run;
  }
  for (const auto& [seed, run] : longest) {
    comparison.initial_weights[seed] = run->summary.initial_weights;
    comparison.batches[seed] = run->summary.batches;
  }
}

std::optional<double> best_rate(const Plan& plan, size_t contender, const std::vector<RunOutcome>& runs) {
  const auto sweep = analyze_sweep(points_of(plan, contender, runs), plan.config().real("compare.tolerance"));
  if (!sweep) return std::nullopt;
  return sweep->best.lr;
}

Comparison analyze(const Plan& plan, const std::vector<RunOutcome>& runs) {
  Comparison comparison;
  check_equal_start_and_data(runs, comparison);
  std::vector<size_t> all;
  for (size_t i = 0; i < plan.contenders().size(); ++i) {
    comparison.results.push_back(result_of(plan, i, runs));
    all.push_back(i);
  }
  comparison.baseline = baseline_of(plan, comparison.results);
  comparison.winner = best_of(comparison.results, all);
  const auto& baseline = comparison.results[comparison.baseline];
  for (size_t i = 0; i < all.size(); ++i) compare_with_baseline(plan, runs, baseline, i, comparison.results[i]);
  return comparison;
}

}  // namespace prism::compare
