#include <fmt/format.h>
#include <fmt/ranges.h>

#include "prism/cli/command.h"
#include "prism/cli/console.h"
#include "prism/cli/jobs.h"
#include "prism/cli/options.h"
#include "prism/cli/run_header.h"
#include "prism/io/error.h"
#include "prism/io/file.h"
#include "prism/report/text_table.h"
#include "prism/reproduce/report.h"

namespace prism::cli {
namespace {

namespace fs = std::filesystem;
using reproduce::Experiment;
using Cells = std::vector<std::string>;

struct ReproduceOptions {
  std::vector<std::string> names;
  reproduce::Choices choices;
  std::string pool = "runs/pool";
  std::vector<std::string> merge;
  double minutes = 0;
  int64_t jobs = 1;
  double epochs = 1;
  bool dry_run = false, keep_runs = false, markdown = false;
};

// Leaves out --merge, which has been done, and options that have their defaults.
std::string command_text(const ReproduceOptions& options) {
  const ReproduceOptions defaults;
  const auto& choices = options.choices;
  auto text = fmt::format("prism reproduce {} --scale {} --pool {}", fmt::join(options.names, " "), choices.scale,
                          shell_word(options.pool));
  for (const auto& path : choices.data) text += " --data " + shell_word(path);
  for (const auto& path : choices.held_out) text += " --held-out " + shell_word(path);
  if (!choices.tokenizer.empty()) text += " --tokenizer " + shell_word(choices.tokenizer);
  if (choices.device != defaults.choices.device) text += " --device " + choices.device;
  if (options.epochs != defaults.epochs) text += fmt::format(" --epochs {}", options.epochs);
  if (options.minutes != defaults.minutes) text += fmt::format(" --minutes {}", options.minutes);
  if (options.jobs != defaults.jobs) text += fmt::format(" --jobs {}", options.jobs);
  if (options.keep_runs) text += " --keep-runs";
  for (const auto& setting : choices.settings) text += " --set " + shell_word(setting);
  return text;
}

void check(const ReproduceOptions& options) {
  if (!(options.minutes >= 0)) throw Error(fmt::format("--minutes: expected 0 or more, got {}", options.minutes));
  if (!(options.epochs > 0)) throw Error(fmt::format("--epochs: expected a number above 0, got {}", options.epochs));
}

// Throws if a missing run would pass over its text more often than --epochs allows.
void check_epochs(const std::vector<Experiment>& experiments, const reproduce::Pool& pool,
                  const train::Dataset& dataset, const reproduce::Setup& setup, double epochs) {
  for (const auto& missing : reproduce::missing_runs(experiments, pool, setup)) {
    const auto& config = missing.run.config;
    const int64_t wanted =
        config.integer("train.steps") * config.integer("train.batch") * config.integer("train.context");
    const auto there = static_cast<double>(dataset.train.tokens());
    if (static_cast<double>(wanted) <= there * epochs) continue;
    throw Error(fmt::format(
        "--data: {} trains on {} tokens, but the text has {}; give more text or allow repetition with --epochs {:.1f}",
        missing.name, grouped(wanted), grouped(dataset.train.tokens()),
        std::ceil(10 * static_cast<double>(wanted) / there) / 10));
  }
}

void print_plan(const ReproduceOptions& options, const std::vector<Experiment>& experiments,
                const reproduce::Pool& pool, const reproduce::Setup& setup) {
  using report::Align;
  report::TextTable table({{"experiment"}, {"runs", Align::Right}, {"done", Align::Right}, {"left", Align::Right}});
  std::string markdown = "| experiment | question | runs | done | left |\n|---|---|---|---|---|\n";
  double total = 0;
  for (const auto& line : reproduce::plan_lines(experiments, pool, setup)) {
    const Cells cells = {grouped(line.runs), grouped(line.done), line.seconds > 0 ? in_time(line.seconds) : ""};
    table.row({line.name, cells[0], cells[1], cells[2]});
    markdown += fmt::format("| `{}` | {} | {} |\n", line.name, line.question, fmt::join(cells, " | "));
    total += line.seconds;
  }
  fmt::print(
      "{}\nAbout {} of training left. Experiments share runs; a run counts in the first experiment that needs it.\n",
      options.markdown ? markdown : table.text(), in_time(total));
}

void print_results(const ReproduceOptions& options, const std::vector<Experiment>& experiments,
                   const reproduce::Pool& pool, const reproduce::Setup& setup) {
  for (const auto& experiment : experiments) {
    const auto state = reproduce::state_of(experiment, pool, setup);
    const auto rows = reproduce::rows_of(experiment, state, pool, setup);
    if (rows.empty()) continue;
    if (options.markdown) {
      fmt::print("{}\n", reproduce::markdown_table(experiment, rows));
    } else {
      fmt::print("\n{}\n{}\n", experiment.title, reproduce::screen_table(experiment, rows, terminal_of(stdout).width));
    }
    if (!state.complete()) {
      fmt::print("{} of {} runs are still to come.\n", state.missing.size() + static_cast<size_t>(state.later),
                 experiment.plan.total_runs());
      continue;
    }
    for (const auto& sentence : reproduce::verdict(experiment, state, rows)) fmt::print("{}\n", sentence);
    if (options.markdown) continue;
    auto name = experiment.name + "-" + options.choices.scale + ".html";
    std::replace(name.begin(), name.end(), '/', '-');
    const auto page = pool.folder() / "pages" / name;
    io::make_folders(page.parent_path());
    report::write(reproduce::page_document(experiment, state, rows, command_text(options)), page);
    fmt::print("{}\n", page.string());
  }
}

std::string progress_text(const reproduce::RunnerProgress& p) {
  return fmt::format("{} done, {} left  ETA {}  {}  step {}/{}  loss {:.3f}  {} tokens/s", p.done, p.left,
                     in_time(p.eta_s), p.name, p.inner.step, p.inner.steps, p.inner.loss,
                     grouped(static_cast<int64_t>(p.inner.tokens_per_s)));
}

// Makes the missing runs. Returns the exit status.
int make_runs(const ReproduceOptions& options, const std::vector<Experiment>& experiments, reproduce::Pool& pool,
              std::optional<reproduce::Setup>& setup) {
  ProgressLine line;
  auto config = experiments.front().plan.config();
  config.assign("run.out", options.pool, "--pool");
  const auto dataset = open_dataset(config, line);
  setup = reproduce::setup_of(experiments, dataset);
  check_epochs(experiments, pool, dataset, *setup, options.epochs);
  const Interrupt interrupt(kSavesRun);
  reproduce::RunnerOptions run;
  run.stop = &interrupt.signal();
  run.seconds = 60 * options.minutes;
  run.keep_runs = options.keep_runs;
  run.progress = [&](const reproduce::RunnerProgress& p) {
    if (line.due()) line.update(progress_text(p));
  };
  run.note = [&](const std::string& text) { line.note(text); };
  if (options.jobs > 1) {
    if (const auto remark = jobs_warning(config, options.jobs); !remark.empty()) line.note(remark);
    run.ahead = [&](const auto& runs, const auto& out_of_time) {
      std::vector<Job> list;
      for (const auto& [name, one] : runs) list.push_back({name, one});
      return run_jobs(list, dataset,
                      {options.jobs, train::data_folder(config), &interrupt.signal(), out_of_time, &line});
    };
  }
  const auto end = reproduce::make_runs(experiments, pool, dataset, run);
  line.clear();
  if (end != reproduce::RunnerEnd::Complete)
    say(stdout, fmt::format("{}; run the same command to continue: {}\n",
                            end == reproduce::RunnerEnd::OutOfTime ? "out of time" : "saved", command_text(options)));
  return end == reproduce::RunnerEnd::Interrupted ? 128 + interrupt.signal() : 0;
}

int reproduce_experiments(const ReproduceOptions& given) {
  ReproduceOptions options = given;
  check(options);
  if (options.choices.scale == "smoke" && options.choices.data.empty()) options.choices.data = {"torch-sources"};
  const auto experiments = reproduce::make_experiments(options.names, options.choices);
  reproduce::Pool pool(options.pool);
  for (const auto& path : options.merge) {
    const auto merged = pool.merge(path);
    fmt::print("{}: {} results added, {} already known, {} skipped (other numerics)\n", path, merged.added,
               merged.known, merged.outdated);
  }
  auto setup = reproduce::most_common_setup(experiments, pool);
  if (options.dry_run) {
    print_plan(options, experiments, pool, setup.value_or(reproduce::Setup{}));
    return 0;
  }
  int status = 0;
  if (!options.choices.data.empty() && !options.markdown) status = make_runs(options, experiments, pool, setup);
  if (!setup) {
    const auto none = fmt::format("{} holds no run of {} at scale {}", options.pool, fmt::join(options.names, " "),
                                  options.choices.scale);
    if (!options.choices.data.empty())
      throw Error(fmt::format("--markdown: {}; run it without --markdown to make them", none));
    throw Error(fmt::format("--data: {}; give the text to train on{}", none,
                            options.choices.scale == "paper"
                                ? ": the Parquet files of FineWeb-Edu's sample of 10 billion tokens (sample/10BT)"
                                : ""));
  }
  if (status == 0) print_results(options, experiments, pool, *setup);
  return status;
}

void add_options(CLI::App& app, ReproduceOptions& options) {
  app.add_option("name", options.names,
                 "Experiments (listed in docs/reproduce.md), a group\nsuch as covariance, or all")
      ->required()
      ->type_name("NAME");
  app.add_option("--scale", options.choices.scale,
                 fmt::format("Size of the runs: {}", fmt::join(reproduce::scale_names(), ", ")))
      ->required()
      ->type_name("SCALE");
  app.add_option("--data", options.choices.data,
                 "Text or token shards to train on. Without it, smoke\ntrains on the Python files of torch; other "
                 "scales\nshow the results that the pool holds")
      ->type_name("PATH");
  app.add_option("--held-out", options.choices.held_out, "Text to measure the loss on, never trained on")
      ->type_name("PATH");
  app.add_option("--tokenizer", options.choices.tokenizer, "tokenizer.json; without it one is trained")
      ->type_name("FILE");
  app.add_option("--pool", options.pool, "Folder that collects the results")
      ->type_name("FOLDER")
      ->capture_default_str();
  app.add_option("--merge", options.merge, "Add the results of another pool")->type_name("PATH");
  app.add_option("--minutes", options.minutes, "Stop cleanly after N minutes; 0: when all is done")
      ->type_name("N")
      ->capture_default_str();
  add_integer(app, "--jobs", options.jobs, "Runs at a time; each takes its own GPU if there are\nseveral", 1, 64);
  app.add_option("--epochs", options.epochs, "Passes that a run may make over its text")
      ->type_name("N")
      ->capture_default_str();
  add_device(app, options.choices.device);
  app.add_option("--set", options.choices.settings, "Set one key in every run; may be repeated")
      ->type_name("section.key=value")
      ->expected(1)
      ->take_all();
  app.add_flag("--dry-run", options.dry_run, "Print the runs and their time, then exit");
  app.add_flag("--markdown", options.markdown, "Print the tables as Markdown; make no runs");
  app.add_flag("--keep-runs", options.keep_runs, "Keep the folders of finished runs in the pool");
}

}  // namespace

Command reproduce_command() {
  return make_command("reproduce", "Run the paper's experiments and further ones",
                      "prism reproduce table1 --scale smoke\n"
                      "prism reproduce all --scale sweep --data corpus.txt --minutes 30 --pool pool\n"
                      "prism reproduce table1 --scale sweep --pool experiments",
                      add_options, reproduce_experiments);
}

}  // namespace prism::cli
