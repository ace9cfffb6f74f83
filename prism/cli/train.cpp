#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "prism/cli/command.h"
#include "prism/cli/console.h"
#include "prism/cli/interrupt.h"
#include "prism/cli/jobs.h"
#include "prism/cli/options.h"
#include "prism/cli/run_header.h"
#include "prism/io/error.h"
#include "prism/train/config.h"
#include "prism/train/estimate.h"
#include "prism/train/run.h"
#include "prism/train/run_folder.h"

namespace prism::cli {
namespace {

struct TrainOptions {
  ConfigOptions config;
  bool resume = false;
  bool list_keys = false;
  bool dry_run = false;
  std::string job;
};

std::string progress_text(const train::RunProgress& p) {  // the last words are the first that a narrow terminal loses
  auto text = fmt::format("step {}/{}  ETA {}  loss {:.3f}", p.step, p.steps, in_time(p.eta_s), p.loss);
  if (p.val_loss) text += fmt::format("  held-out {:.3f}", *p.val_loss);
  if (p.skipped > 0) text += fmt::format("  skipped {}", p.skipped);
  return text + fmt::format("  {} tokens/s  optimizer {:.0f} %", grouped(static_cast<int64_t>(p.tokens_per_s)),
                            100 * p.optimizer_share);
}

// With --resume alone the run's own configuration is taken; with --config it is given anew and compared with it.
io::Config configuration(const TrainOptions& options) {
  auto config = train::make_config();
  options.config.apply(config);
  if (!options.resume) return config;
  auto stored = train::RunFolder{config.string("run.out")}.config();
  if (options.config.file) {
    if (stored) train::keep_old_defaults(config, *stored);
    return config;
  }
  if (!stored && config.has("data.path")) return config;
  if (!stored) throw Error(fmt::format("--resume: no run in {}; give --config to begin one", config.string("run.out")));
  for (const auto& setting : options.config.settings) stored->set(setting);
  stored->assign("run.out", config.string("run.out"), config.where("run.out"));
  return *stored;
}

int finish(const train::RunSummary& result, const std::string& folder, int64_t patience, const Interrupt& interrupt) {
  const auto text = [](double loss) { return std::isfinite(loss) ? fmt::format("{:.4f}", loss) : "none"; };
  if (result.status == train::RunStatus::Diverged) {
    say(stderr, fmt::format("prism train: {}\n", result.diagnosis));
    return 1;
  }
  if (result.status == train::RunStatus::Interrupted) {
    say(stdout, fmt::format("saved at step {}; go on with: prism train --resume --out {}\n", result.step, folder));
    return 128 + interrupt.signal();
  }
  if (result.stopped_early) {
    say(stdout, fmt::format("stopped early: no better held-out loss than {} in {}\n", text(result.best_val_loss),
                            io::counted(patience, "evaluation")));
  }
  say(stdout, fmt::format("trained {} steps on {} tokens in {}: loss {}, held-out loss {}\n{}\n", result.step,
                          grouped(result.tokens), in_time(result.timing.seconds), text(result.loss),
                          text(result.val_loss), folder));
  return 0;
}

// Says what the run will be and need, before it starts.
void announce(const io::Config& complete, const train::DatasetSize& data, ProgressLine& line) {
  line.doing("measuring a step");
  const auto estimate = train::estimate(complete, data, train::RunFolder{complete.string("run.out")}.saved_step());
  for (const auto& text : run_header(complete, data, estimate)) line.note(text);
  for (const auto& text : run_warnings(complete, estimate)) line.note(text);
}

io::Config completed(io::Config config, int64_t vocab) {
  train::resolve(config, vocab);
  return config;
}

int dry_run(const io::Config& config, ProgressLine& line) {
  line.doing("data: reading the text");
  const auto data = train::foresee_dataset(config, train::data_folder(config));
  const auto complete = completed(config, data.vocab);
  line.clear();
  say(stdout, annotated_toml(complete, config) + "\n");
  line.note(data_line(data));
  announce(complete, data, line);
  return 0;
}

int train(const TrainOptions& options) {
  if (options.list_keys) {
    fmt::print(
        "# Configuration keys\n\n"
        "Printed by `prism train --list-keys`. A key is given in the file of `--config` or with `--set key=value`;\n"
        "`[compare.override.NAME]` gives those of `optimizer`, `schedule`, `checkpoint` and `metrics`, and "
        "`compare.label`, `compare.lr`,\n"
        "`train.clip`, `train.accumulate`, `train.graph` and `model.recompute`, again for one name of "
        "`compare.optimizers`.\n\n{}",
        train::config_table().markdown());
    return 0;
  }
  if (!options.job.empty()) return run_job(options.job);
  const auto config = configuration(options);
  const train::RunFolder folder{config.string("run.out")};
  train::check(config);
  folder.expect_place_for_run(options.resume);
  train::check_resume(config);
  ProgressLine line;
  if (options.dry_run) return dry_run(config, line);
  const auto dataset = open_dataset(config, line, folder.trained_data());
  announce(completed(config, dataset.tokenizer.size()), train::size_of(dataset), line);
  const Interrupt interrupt(kSavesRun);
  train::RunOptions run;
  run.resume = options.resume;
  run.stop = &interrupt.signal();
  run.progress = [&](const train::RunProgress& p) {
    if (line.due()) line.update(progress_text(p));
  };
  run.note = [&](const std::string& text) { line.note(text); };
  run.doing = [&](const std::string& text) { line.doing(text); };
  const auto result = train::run(config, dataset, run);
  line.clear();
  return finish(result, config.string("run.out"), config.integer("train.patience"), interrupt);
}

}  // namespace

Command train_command() {
  return {"train", "Train a language model on your text",
          "prism train --config configs/demo.toml --set train.steps=40 --out runs/a\nprism train --resume --out runs/a",
          [](CLI::App& app) -> Action {
            auto options = std::make_shared<TrainOptions>();
            options->config.attach(app);
            app.add_flag("--resume", options->resume,
                         "Go on with the run in the folder, from its newest\ncheckpoint that verifies");
            app.add_flag("--dry-run", options->dry_run,
                         "Say what the run would be and need (time, memory, disk),\nprint its configuration, and end");
            app.add_option("--job", options->job)->group("");  // what run_jobs starts
            app.add_flag("--list-keys", options->list_keys,
                         "Print every key of the configuration with its default, and end");
            return [options] { return train(*options); };
          }};
}

}  // namespace prism::cli
