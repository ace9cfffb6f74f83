#include "prism/reproduce/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "prism/compare/sentences.h"
#include "prism/compare/summary.h"
#include "prism/io/spelling.h"
#include "prism/report/text_table.h"
#include "prism/reproduce/stability.h"

namespace prism::reproduce {
namespace {

void add_stability(Row& row, const Stability& stability) {
  if (stability.diverged) {
    ++row.diverged;
    row.diverged_step = std::min(stability.diverged->step, row.diverged_step.value_or(stability.diverged->step));
  }
  for (const auto& spike : stability.spikes) {
    ++row.spikes;
    if (!spike.recovery) ++row.unrecovered;
  }
}

std::string stability_text(const Row& row) {
  std::string text;
  if (row.diverged > 0) {
    text = row.seeds == 1
               ? fmt::format("diverged at step {}", *row.diverged_step)
               : fmt::format("{} of {} diverged, first at step {}", row.diverged, row.seeds, *row.diverged_step);
  }
  if (row.spikes > 0) {
    text += (text.empty() ? "" : ", ") + io::counted(row.spikes, "spike");
    if (row.unrecovered > 0) text += fmt::format(", {} without recovery", row.unrecovered);
  }
  return text.empty() ? "steady" : text;
}

using Cells = std::vector<std::string>;

// Returns a verdict with the words before its colon in bold.
std::string marked(const std::string& sentence) {
  const auto colon = sentence.find(':');
  return fmt::format("**{}**{}", sentence.substr(0, colon), sentence.substr(colon));
}

bool has_paper(const std::vector<Row>& rows) {
  return std::any_of(rows.begin(), rows.end(), [](const Row& row) { return !row.paper.empty(); });
}

bool is_of_losses(const Experiment& experiment) { return experiment.paper_measure->name == "loss"; }

// Returns the columns of the table. Those with the highest rank are the first that a narrow terminal leaves out.
std::vector<report::TextTable::Column> columns_of(const Experiment& experiment, bool paper) {
  using report::Align;
  std::vector<report::TextTable::Column> columns = {{"series"},
                                                    {"rate", Align::Right},
                                                    {"seeds", Align::Right, 98},
                                                    {"training loss", Align::Right, 99},
                                                    {"held-out loss", Align::Right}};
  int rank = 1;
  if (paper) {
    const auto title = is_of_losses(experiment) ? "paper" : fmt::format("paper: {}", experiment.paper_label);
    columns.push_back({title, Align::Right, rank});
  }
  for (const auto* column : experiment.columns) columns.push_back({column->title, Align::Right, ++rank});
  columns.push_back({"stability", Align::Left, 97});
  return columns;
}

Cells cells_of(const Row& row, bool paper) {
  Cells cells = {row.label, fmt::format("{:g}{}", row.lr, row.best ? " (best)" : ""), fmt::format("{}", row.seeds),
                 compare::estimate_text(row.train_loss), compare::estimate_text(row.held_out)};
  if (paper) cells.push_back(row.paper);
  cells.insert(cells.end(), row.extra.begin(), row.extra.end());
  cells.push_back(stability_text(row));
  return cells;
}

// Returns the paper's numbers beside ours, for the rows that have them.
report::Published published(const Experiment& experiment, const std::vector<Row>& rows) {
  report::Published result{.paper_label = experiment.paper_label, .here_label = experiment.paper_measure->title};
  for (const auto& row : rows) {
    if (row.paper.empty()) continue;
    report::PublishedValue value{
        .optimizer = experiment.plan.contenders()[row.contender].id, .lr = row.lr, .paper = row.paper, .here = "–"};
    value.paper_value = as_number(row.paper);
    if (is_of_losses(experiment)) {
      value.here = compare::estimate_text(row.held_out);
      if (std::isfinite(row.held_out.mean)) value.here_value = row.held_out.mean;
      if (row.held_out.interval)
        std::tie(value.here_low, value.here_high) = std::pair(row.held_out.interval->low, row.held_out.interval->high);
    } else if (const auto measured = experiment.paper_measure->of(*row.run)) {
      value.here = experiment.paper_measure->text(*measured);
      value.here_value = measured;
    }
    result.values.push_back(std::move(value));
  }
  return result;
}

}  // namespace

std::vector<Row> rows_of(const Experiment& experiment, const State& state, const Pool& pool, const Setup& setup) {
  std::vector<Row> rows;
  const auto& plan = experiment.plan;
  for (size_t contender = 0; contender < plan.contenders().size(); ++contender) {
    const auto& entry = plan.contenders()[contender];
    const auto best = compare::best_rate(plan, contender, state.outcomes);
    for (size_t rate = 0; rate < entry.rates.size(); ++rate) {
      const double lr = entry.rates[rate];
      Row row;
      row.contender = contender;
      row.label = entry.label;
      row.lr = lr;
      row.best = entry.rates.size() > 1 && best && *best == lr;
      std::vector<double> train, held_out;
      for (const auto& run : state.outcomes) {
        if (run.contender != contender || run.lr != lr) continue;
        ++row.seeds;
        held_out.push_back(run.loss);
        train.push_back(run.diverged ? compare::kInfinity : compare::finite_or_infinity(run.summary.loss));
        const auto* stored = find(pool, plan.run(contender, lr, run.seed), setup);
        add_stability(row, stored->stability);
        if (row.run == nullptr) row.run = stored;
      }
      if (row.seeds == 0) continue;
      row.train_loss = compare::mean_with_interval(train);
      row.held_out = compare::mean_with_interval(held_out);
      if (const auto paper = entry.config.strings("experiment.paper"); !paper.empty()) row.paper = paper[rate];
      for (const auto* column : experiment.columns) {
        const auto value = column->of(*row.run);
        row.extra.push_back(value ? column->text(*value) : "–");
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::string screen_table(const Experiment& experiment, const std::vector<Row>& rows, int64_t width) {
  const bool paper = has_paper(rows);
  report::TextTable table(columns_of(experiment, paper));
  for (const auto& row : rows) table.row(cells_of(row, paper));
  return table.text(report::locale_is_utf8(), width);
}

std::string markdown_table(const Experiment& experiment, const std::vector<Row>& rows) {
  const bool paper = has_paper(rows);
  std::string titles = "|", rule = "|", text;
  for (const auto& column : columns_of(experiment, paper)) {
    titles += fmt::format(" {} |", column.title);
    rule += "---|";
  }
  for (const auto& row : rows) text += fmt::format("| {} |\n", fmt::join(cells_of(row, paper), " | "));
  return titles + "\n" + rule + "\n" + text;
}

std::vector<std::string> verdict(const Experiment& experiment, const State& state, const std::vector<Row>& rows) {
  const auto comparison = compare::analyze(experiment.plan, state.outcomes);
  std::vector<std::string> sentences;
  for (const auto& claim : experiment.claims) sentences.push_back(judge(claim, experiment.plan, rows).sentence + ".");
  for (const auto& sentence : compare::sentences(experiment.plan, comparison))
    sentences.push_back(compare::plain_text(sentence.text));
  double squares = 0;
  int64_t degrees = 0, seeds = 0;
  for (const auto& result : comparison.results) {
    std::vector<double> losses;
    for (const auto& [seed, loss] : result.losses) {
      if (std::isfinite(loss)) losses.push_back(loss);
    }
    if (losses.size() < 2) continue;
    const double mean = compare::mean_with_interval(losses).mean;
    for (const double loss : losses) squares += (loss - mean) * (loss - mean);
    degrees += static_cast<int64_t>(losses.size()) - 1;
    seeds = static_cast<int64_t>(losses.size());
  }
  if (degrees > 0) {
    const double deviation = std::sqrt(squares / static_cast<double>(degrees));
    sentences.push_back(fmt::format(
        "Standard deviation between seeds: {:.4f}. With {} seeds each, a test would detect a difference of {:.4f} "
        "four times in five.",
        deviation, seeds, detectable_difference(deviation, seeds)));
  }
  if (has_paper(rows) && is_of_losses(experiment))
    sentences.push_back(
        "The paper's losses come from another corpus, tokenizer and run length: compare only their order.");
  return sentences;
}

report::PageDocument page_document(const Experiment& experiment, const State& state, const std::vector<Row>& rows,
                                   const std::string& command) {
  const auto comparison = compare::analyze(experiment.plan, state.outcomes);
  auto document = compare::page_document(experiment.plan, comparison, state.outcomes, {}, command);
  document.title = experiment.title;
  std::vector<report::Sentence> context;
  if (!experiment.question.empty()) context.push_back({experiment.question});
  for (const auto& claim : experiment.claims) {
    const auto verdict = judge(claim, experiment.plan, rows);
    const bool sure = verdict.judgment == Judgment::Confirmed;
    context.push_back({marked(verdict.sentence) + ".", sure ? report::Tone::Plain : report::Tone::Caution});
  }
  document.published = published(experiment, rows);
  document.summary.insert(document.summary.begin() + 1, context.begin(), context.end());
  report::Facts table{"Results at each rate"};
  const bool paper = has_paper(rows);
  const auto columns = columns_of(experiment, paper);
  for (const auto& row : rows) {
    const auto cells = cells_of(row, paper);
    std::vector<std::string> parts;
    for (size_t i = 3; i + 1 < cells.size(); ++i) parts.push_back(fmt::format("{} {}", columns[i].title, cells[i]));
    table.rows.emplace_back(fmt::format("{} at {}", cells[0], cells[1]),
                            fmt::format("{}; {}", fmt::join(parts, ", "), cells.back()));
  }
  document.facts.insert(document.facts.begin(), table);
  return document;
}

std::vector<PlanLine> plan_lines(const std::vector<Experiment>& experiments, const Pool& pool, const Setup& setup) {
  std::vector<PlanLine> lines;
  std::set<std::string> counted;
  for (const auto& experiment : experiments) {
    const auto state = state_of(experiment, pool, setup);
    PlanLine line{.name = experiment.name,
                  .question = experiment.question,
                  .runs = static_cast<int64_t>(experiment.plan.total_runs()),
                  .done = static_cast<int64_t>(state.outcomes.size()),
                  .seconds = 0};
    double mean = 0;
    for (const auto& run : state.missing) {
      mean += run.seconds / static_cast<double>(state.missing.size());
      if (counted.insert(run.key.hash()).second) line.seconds += run.seconds;
    }
    line.seconds += mean * static_cast<double>(state.later);
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace prism::reproduce
