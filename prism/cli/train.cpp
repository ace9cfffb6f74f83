#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>

#include "prism/cli/command.h"
#include "prism/cli/console.h"
#include "prism/cli/jobs.h"
#include "prism/cli/options.h"
#include "prism/cli/run_header.h"
#include "prism/dist/communicator.h"
#include "prism/io/error.h"
#include "prism/train/config.h"
#include "prism/train/machine.h"
#include "prism/train/processes.h"
#include "prism/train/run.h"
#include "prism/train/run_folder.h"

namespace prism::cli {
namespace {

constexpr auto kNoLimit = std::chrono::hours(24 * 365);

struct TrainOptions {
  ConfigOptions config;
  bool resume = false;
  bool list_keys = false;
  bool dry_run = false;
  std::string job;
};

std::string progress_text(const train::RunProgress& p) {  // most important first: a narrow terminal cuts the end
  auto text = fmt::format("step {}/{}  ETA {}  loss {:.3f}", p.step, p.steps, in_time(p.eta_s), p.loss);
  if (p.val_loss) text += fmt::format("  held-out {:.3f}", *p.val_loss);
  if (p.skipped > 0) text += fmt::format("  skipped {}", p.skipped);
  return text + fmt::format("  {} tokens/s  optimizer {:.0f} %", grouped(static_cast<int64_t>(p.tokens_per_s)),
                            100 * p.optimizer_share);
}

// Returns the configuration to train with. That is the stored one for --resume without --config, else the given one.
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
  if (!stored) throw Error(fmt::format("--resume: no run in {}; give --config to start one", config.string("run.out")));
  for (const auto& setting : options.config.settings) stored->set(setting);
  stored->assign("run.out", config.string("run.out"), config.where("run.out"));
  return *stored;
}

// The longest wait for another process. Mistakes in the configuration are reported later, by all processes together.
dist::Communicator::Seconds peer_timeout(const TrainOptions& options) {
  try {
    return dist::Communicator::Seconds(configuration(options).integer("run.peer_timeout"));
  } catch (const std::exception&) {
    return dist::Communicator::kTimeout;
  }
}

// Of a run that was interrupted, perhaps by a signal to another process.
int status_of(const Interrupt& interrupt) {
  return 128 + (interrupt.signal() != 0 ? interrupt.signal().load() : SIGTERM);
}

int finish(const train::RunSummary& result, const std::string& folder, int64_t patience, const Interrupt& interrupt) {
  const auto text = [](double loss) { return std::isfinite(loss) ? fmt::format("{:.4f}", loss) : "none"; };
  if (result.status == train::RunStatus::Diverged) {
    say(stderr, fmt::format("prism train: {}\n", result.diagnosis));
    return 1;
  }
  if (result.status == train::RunStatus::Interrupted) {
    say(stdout, fmt::format("saved at step {}; continue with: prism train --resume --out {}\n", result.step, folder));
    return status_of(interrupt);
  }
  if (result.stopped_early) {
    say(stdout, fmt::format("stopped early: the held-out loss did not improve on {} in {}\n",
                            text(result.best_val_loss), io::counted(patience, "evaluation")));
  }
  say(stdout, fmt::format("trained {} on {} tokens in {}: loss {}, held-out loss {}\n{}\n",
                          io::counted(result.step, "step"), grouped(result.tokens), in_time(result.timing.seconds),
                          text(result.loss), text(result.val_loss), folder));
  return 0;
}

io::Config completed(io::Config config, int64_t vocab) {
  train::resolve(config, vocab);
  return config;
}

int dry_run(const io::Config& config, int64_t saved_step, ProgressLine& line, int64_t processes) {
  line.doing("data: reading the text");
  const auto data = train::estimate_dataset(config, train::data_folder(config));
  const auto complete = completed(config, data.vocab);
  line.clear();
  fmt::print("{}\n", annotated_toml(complete, config));
  finish_output();  // before the lines on standard error
  line.note(data_line(data));
  announce(complete, data, line, saved_step, /*runs=*/1, processes);
  return 0;
}

// The data of a run. Rank 0 prepares it, which may take hours, and the others open what it has made.
train::Dataset shared_dataset(const io::Config& config, ProgressLine& line, dist::Communicator& processes) {
  const train::RunFolder folder{config.string("run.out")};
  std::optional<train::Dataset> dataset;
  const auto timeout = processes.timeout();
  processes.set_timeout(kNoLimit);
  dist::together(processes, [&] {
    if (processes.rank() == 0) dataset = open_dataset(config, line, folder.trained_data());
  });
  if (!processes.is_distributed()) return std::move(*dataset);
  processes.set_timeout(timeout);
  const auto tokenizer = processes.gather(dataset ? dataset->tokenizer.to_json() : "").front();
  dist::together(processes, [&] {
    if (dataset) return;
    dataset =
        train::open_prepared(config, text::Tokenizer::from_json(tokenizer).with_end_of_text(config.string("data.eos")),
                             train::data_folder(config));
  });
  return std::move(*dataset);
}

int train(const TrainOptions& options, const std::shared_ptr<dist::Communicator>& processes) {
  const bool speaks = processes->rank() == 0;
  std::optional<io::Config> config;
  dist::together(*processes, [&] {
    config = configuration(options);
    train::choose_device(*processes, *config);
    train::check(*config);
    train::micro_batches(*config, *processes);
    train::RunFolder{config->string("run.out")}.check_can_train(options.resume);
    train::check_resume(*config);
  });
  train::expect_equal_configs(*processes, *config);
  ProgressLine line;
  const int64_t saved_step = train::RunFolder{config->string("run.out")}.saved_step();
  if (options.dry_run) return speaks ? dry_run(*config, saved_step, line, processes->size()) : 0;
  const auto dataset = shared_dataset(*config, line, *processes);
  const auto on_device = dist::for_device(processes, train::device_of(config->string("run.device")));
  if (speaks) {
    if (processes->is_distributed()) {
      line.note(fmt::format("runs on {}, with {}",
                            processes->size() == 1 ? "1 process" : fmt::format("{} processes", processes->size()),
                            on_device->transport()));
    }
    announce(completed(*config, dataset.tokenizer.size()), train::size_of(dataset), line, saved_step, /*runs=*/1,
             processes->size());
  }
  const Interrupt interrupt(speaks ? kSavesRun : "");
  train::RunOptions run;
  run.resume = options.resume;
  run.stop = &interrupt.signal();
  run.processes = on_device;
  if (speaks) {
    run.progress = [&](const train::RunProgress& p) {
      if (line.due()) line.update(progress_text(p));
    };
    run.note = [&](const std::string& text) { line.note(text); };
    run.doing = [&](const std::string& text) { line.doing(text); };
  }
  const auto result = train::run(*config, dataset, run);
  line.clear();
  if (!speaks) return result.status == train::RunStatus::Interrupted ? status_of(interrupt) : 0;
  return finish(result, config->string("run.out"), config->integer("train.patience"), interrupt);
}

// Connects the processes that a launcher started, if any, and runs the action. Returns the exit status. Where several
// processes run, it reports exceptions: one that all of them throw (dist::Agreed) is printed once, and they end together;
// any other ends all processes at once. `timeout` is the longest wait for another process.
int on_all_processes(const std::string& who, dist::Communicator::Seconds timeout,
                     const std::function<int(const std::shared_ptr<dist::Communicator>&)>& action) {
  const auto processes = dist::start(timeout, [&](const std::string& text) {
    say(stderr, fmt::format("{}: {}\n", who, text));
    std::_Exit(1);
  });
  if (!processes->is_distributed()) return action(processes);
  bool agreed = true;
  const auto guarded = [&] {
    try {
      return action(processes);
    } catch (const dist::Agreed&) {
      throw;
    } catch (...) {
      agreed = false;
      const auto fault = dist::current_fault();
      const auto text = fmt::format("process {}: {}", processes->rank(), fault.text);
      if (fault.status == 2) throw Error(text);
      throw std::runtime_error(text);
    }
  };
  const int status = perform(guarded, who);
  if (!agreed) processes->abort(status);
  processes->finish();
  return status;
}

int train(const TrainOptions& options) {
  if (options.list_keys) {
    fmt::print(
        "# Configuration keys\n\n"
        "Printed by `prism train --list-keys`. Set a key in the file of `--config`, or with `--set key=value`.\n"
        "`[compare.override.NAME]` sets keys for one name of `compare.optimizers`: those of `optimizer`, `schedule`,\n"
        "`checkpoint` and `metrics`, and `compare.label`, `compare.lr`, `train.clip`, `train.accumulate`, "
        "`train.graph`\n"
        "and `model.recompute`.\n\n{}",
        train::config_table().markdown());
    return 0;
  }
  if (!options.job.empty()) return run_job(options.job);
  return on_all_processes("prism train", peer_timeout(options),
                          [&](const auto& processes) { return train(options, processes); });
}

void add_options(CLI::App& app, TrainOptions& options) {
  options.config.attach(app);
  app.add_flag("--resume", options.resume, "Continue the run in the folder from its newest valid\ncheckpoint");
  app.add_flag("--dry-run", options.dry_run,
               "Print the configuration and what the run would need\n(time, memory, disk), then exit");
  app.add_option("--job", options.job)->group("");  // hidden: the child process of run_jobs
  app.add_flag("--list-keys", options.list_keys, "Print all configuration keys with their defaults,\nthen exit");
}

}  // namespace

Command train_command() {
  return make_command(
      "train", "Train a language model on your text",
      "prism train --config configs/demo.toml --set train.steps=40 --out runs/a\nprism train --resume --out runs/a",
      add_options, train);
}

}  // namespace prism::cli
