#include "prism/compare/compare.h"

#include <fmt/format.h>

#include "prism/cli/command.h"
#include "prism/cli/console.h"
#include "prism/cli/jobs.h"
#include "prism/cli/options.h"
#include "prism/cli/run_header.h"
#include "prism/compare/sentences.h"
#include "prism/io/error.h"
#include "prism/train/config.h"
#include "prism/train/run_folder.h"

namespace prism::cli {
namespace {

std::string progress_text(const compare::CompareProgress& p) {
  return fmt::format("run {}/{}  ETA {}  {}  step {}/{}  loss {:.3f}  {} tokens/s  optimizer {:.0f} %", p.run, p.runs,
                     in_time(p.eta_s), p.name, p.inner.step, p.inner.steps, p.inner.loss,
                     grouped(static_cast<int64_t>(p.inner.tokens_per_s)), 100 * p.inner.optimizer_share);
}

std::string command_text(const ConfigOptions& options) {
  std::string text = "prism compare";
  if (options.file) text += " --config " + shell_word(*options.file);
  for (const auto& setting : options.settings) text += " --set " + shell_word(setting);
  return text + (options.out ? " --out " + shell_word(*options.out) : "");
}

void print(const compare::Plan& plan, const compare::CompareResult& result) {
  auto text = fmt::format("\n{}\n", compare::screen_table(result.comparison, terminal_of(stdout).width));
  for (const auto& sentence : compare::sentences(plan, result.comparison))
    text += compare::plain_text(sentence.text) + "\n";
  for (const auto& sample : result.samples) {
    for (const auto& contender : plan.contenders()) {
      if (contender.id == sample.optimizer)
        text += fmt::format("\n{} at its best rate continues:\n{}{}\n", contender.label, sample.prompt, sample.text);
    }
  }
  fmt::print("{}\n{}\n", text, (plan.folder() / "report.html").string());
}

// Prints what the runs that are left will need.
void announce_left(const compare::Plan& plan, const train::Dataset& dataset, ProgressLine& line) {
  const auto left = compare::runs_left(plan);
  if (left.empty()) {
    line.note("runs    all have ended");
    return;
  }
  int64_t saved_steps = 0;
  for (const auto& run : left) saved_steps += train::RunFolder{run.folder}.saved_step();
  auto next = left.front().config;
  train::resolve(next, dataset.tokenizer.size());
  announce(next, train::size_of(dataset), line, saved_steps / std::ssize(left), left.size());
}

int compare_optimizers(const ConfigOptions& options) {
  auto config = train::make_config();
  options.apply(config);
  const compare::Plan plan(config);
  ProgressLine line;
  const auto dataset = open_dataset(config, line, compare::check_folder(plan));
  announce_left(plan, dataset, line);
  const Interrupt interrupt(kSavesRun);
  compare::CompareOptions run;
  run.stop = &interrupt.signal();
  run.command = command_text(options);
  run.progress = [&](const compare::CompareProgress& p) {
    if (line.due()) line.update(progress_text(p));
  };
  run.note = [&](const std::string& text) { line.note(text); };
  run.doing = [&](const std::string& text) { line.doing(text); };
  if (const auto jobs = config.integer("compare.jobs"); jobs > 1) {
    if (const auto remark = jobs_warning(config, jobs); !remark.empty()) line.note(remark);
    run.ahead = [&, jobs](const std::vector<compare::PlannedRun>& planned) {
      std::vector<Job> list;
      for (const auto& one : planned) list.push_back({compare::name_of(plan, one), one.config});
      return run_jobs(list, dataset, {jobs, train::data_folder(config), &interrupt.signal(), {}, &line});
    };
  }
  const auto result = compare::compare(plan, dataset, run);
  line.clear();
  if (result.interrupted) {
    say(stdout, fmt::format("saved; run the same command to continue: {}\n", run.command));
    return 128 + interrupt.signal();
  }
  print(plan, result);
  return 0;
}

void add_options(CLI::App& app, ConfigOptions& options) { options.attach(app); }

}  // namespace

Command compare_command() {
  return make_command("compare", "Compare optimizers, each at its best learning rate",
                      "prism compare --config configs/demo.toml --out runs/demo", add_options, compare_optimizers);
}

}  // namespace prism::cli
