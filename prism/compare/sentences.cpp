#include "prism/compare/sentences.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "prism/report/text_table.h"

namespace prism::compare {
namespace {

using report::Tone;

std::string percent(double share) { return fmt::format("{:g} %", 100 * share); }

const Result* runner_up(const Comparison& comparison) {
  const Result* next = nullptr;
  for (size_t i = 0; i < comparison.results.size(); ++i) {
    const auto& result = comparison.results[i];
    if (i != comparison.winner && (next == nullptr || result.final.mean < next->final.mean)) next = &result;
  }
  return next;
}

Sentence headline(const Comparison& comparison) {
  const auto& winner = comparison.results[comparison.winner];
  const auto& baseline = comparison.results[comparison.baseline];
  if (!winner.sweep) return {"Every run of every optimizer diverged.", Tone::Headline};
  if (!std::isfinite(winner.final.mean)) {
    return {"Every optimizer diverged with at least one seed at its best rate.", Tone::Headline};
  }
  auto text = fmt::format("**{}** has the lowest held-out loss: **{:.4f}**", winner.label, winner.final.mean);
  const Result* other = comparison.winner == comparison.baseline ? runner_up(comparison) : &baseline;
  if (other != nullptr && std::isfinite(other->final.mean)) {
    text += fmt::format(", {:.4f} below {}, {}", other->final.mean - winner.final.mean, other->label,
                        other == &baseline ? "the baseline" : "the runner-up");
  }
  return {text + ".", Tone::Headline};
}

Sentence certainty(const Plan& plan, const Comparison& comparison) {
  const size_t judging = plan.seeds().size() - 1;
  if (judging < kLeastSeeds) {
    const auto seeds = judging == 0 ? std::string("the seed that chose the rates also judged them")
                                    : fmt::format("only {} independent seed{}", judging, judging == 1 ? "" : "s");
    return {fmt::format("Confidence unknown: {} ({} needed for an interval, besides the first of compare.seeds).",
                        seeds, kLeastSeeds),
            Tone::Caution};
  }
  std::vector<std::string> parts;
  for (const auto& result : comparison.results) {
    if (!result.difference || !result.difference->interval) continue;
    const auto& [low, high] = *result.difference->interval;
    const char* verdict = high < 0 ? "lower" : low > 0 ? "higher" : "not distinguishable";
    parts.push_back(fmt::format("{} {} ({:+.4f}, {} interval {:+.4f} to {:+.4f})", result.label, verdict,
                                result.difference->mean, percent(kConfidence), low, high));
  }
  if (parts.empty()) return {"No two optimizers finished with every seed, so none can be compared.", Tone::Caution};
  return {fmt::format("Against {}, best rate against best rate, paired over {} seeds: {}.",
                      comparison.results[comparison.baseline].label, judging, fmt::join(parts, "; ")),
          Tone::Plain};
}

void add_tolerance(const Plan& plan, const Comparison& comparison, std::vector<Sentence>& list) {
  if (!has_sweeps(comparison)) return;
  std::vector<std::string> parts;
  for (const auto& result : comparison.results) {
    if (!result.sweep) continue;
    const bool open = result.sweep->low_open || result.sweep->high_open;
    parts.push_back(fmt::format("{} **×{:.2g}**{}", result.label, result.sweep->factor(), open ? " or more" : ""));
  }
  list.push_back({fmt::format("Rates that stay within {:g} of the best, highest over lowest: {}.",
                              plan.config().real("compare.tolerance"), fmt::join(parts, ", ")),
                  Tone::Plain});
}

void add_warnings(const Comparison& comparison, std::vector<Sentence>& list) {
  for (const auto& result : comparison.results) {
    if (result.sweep && result.sweep->edge != Edge::None) {
      const bool low = result.sweep->edge == Edge::Low;
      list.push_back(
          {fmt::format("{}'s best rate, {}, is the {} of its grid: a {} one may be better.", result.label,
                       rate_text(result.sweep->best.lr), low ? "lowest" : "highest", low ? "lower" : "higher"),
           Tone::Caution});
    }
    std::vector<std::string> rates;
    for (const auto& point : result.points) {
      if (!std::isfinite(point.loss)) rates.push_back(rate_text(point.lr));
    }
    if (!rates.empty())
      list.push_back({fmt::format("{} diverged at {}.", result.label, fmt::join(rates, ", ")), Tone::Caution});
    for (const auto& [seed, loss] : result.losses) {
      if (std::isfinite(loss)) continue;
      list.push_back({fmt::format("{} diverged at its best rate, {}, with seed {}.", result.label,
                                  rate_text(result.sweep->best.lr), seed),
                      Tone::Caution});
    }
  }
}

}  // namespace

std::string plain_text(std::string text) {
  for (size_t at = 0; (at = text.find("**", at)) != std::string::npos;) text.erase(at, 2);
  return text;
}

std::string estimate_text(const Estimate& estimate, bool sign) {
  if (!std::isfinite(estimate.mean)) return "diverged";
  const auto mean = sign ? fmt::format("{:+.4f}", estimate.mean) : fmt::format("{:.4f}", estimate.mean);
  return estimate.interval ? fmt::format("{} ± {:.4f}", mean, estimate.interval->high - estimate.mean) : mean;
}

std::string rate_text(double lr) { return fmt::format("{:.3g}", lr); }

std::string tolerance_text(const Result& result) {
  if (!result.sweep) return "";
  const auto& sweep = *result.sweep;
  return fmt::format("{}{} – {}{}, ×{:.2g}", sweep.low_open ? "≤" : "", rate_text(sweep.low),
                     sweep.high_open ? "≥" : "", rate_text(sweep.high), sweep.factor());
}

std::vector<Sentence> sentences(const Plan& plan, const Comparison& comparison) {
  std::vector<Sentence> list = {headline(comparison)};
  if (comparison.results[comparison.winner].sweep) {
    if (comparison.results.size() > 1) list.push_back(certainty(plan, comparison));
    add_tolerance(plan, comparison, list);
  }
  add_warnings(comparison, list);
  return list;
}

std::string screen_table(const Comparison& comparison, int64_t width) {
  using report::Align;
  report::TextTable table({{"optimizer", Align::Left},
                           {"best lr", Align::Right},
                           {"held-out loss", Align::Right},
                           {"difference", Align::Right},
                           {"good rates", Align::Left, 1},
                           {"tokens to baseline", Align::Right, 2},
                           {"step", Align::Right, 3},
                           {"optimizer's", Align::Right, 4}});
  for (size_t i = 0; i < comparison.results.size(); ++i) {
    const auto& result = comparison.results[i];
    if (!result.sweep) {
      table.row({result.label, "–", "diverged", "", "", "", "", ""});
      continue;
    }
    const auto& timing = result.best_summary.timing;
    table.row({result.label + (i == comparison.baseline ? " (baseline)" : ""),
               rate_text(result.sweep->best.lr) + (result.sweep->edge != Edge::None ? " (edge)" : ""),
               estimate_text(result.final), result.difference ? estimate_text(*result.difference, /*sign=*/true) : "",
               tolerance_text(result),
               result.tokens_to_baseline ? fmt::format("{:.3g} M", *result.tokens_to_baseline / 1e6) : "never",
               fmt::format("{:.1f} ms", timing.step_ms), fmt::format("{:.0f} %", 100 * timing.optimizer_share)});
  }
  return table.text(report::locale_is_utf8(), width);
}

}  // namespace prism::compare
