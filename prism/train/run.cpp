#include "prism/train/run.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdlib>
#include <deque>

#include "prism/data/output_folder.h"
#include "prism/io/atomic_file.h"
#include "prism/io/error.h"
#include "prism/io/hash.h"
#include "prism/model/hugging_face.h"
#include "prism/train/checkpoint.h"
#include "prism/train/config.h"
#include "prism/train/machine.h"
#include "prism/train/run_folder.h"
#include "prism/train/run_page.h"
#include "prism/train/summary.h"

namespace prism::train {
namespace {

namespace fs = std::filesystem;

void set_up_torch(const io::Config& config) {
  if (const auto threads = config.integer("run.threads"); threads > 0) at::set_num_threads(static_cast<int>(threads));
  const bool deterministic = config.boolean("train.deterministic");
  // cuBLAS repeats itself only with a workspace of its own, and torch refuses the strict mode without it.
  if (deterministic) setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
  at::globalContext().setDeterministicCuDNN(deterministic);
}

model::Qwen2 make_model(const io::Config& config, const Dataset& dataset, at::Device device) {
  const auto init = config.string("model.init");
  if (!init.empty()) return model::import_hugging_face(init, device).model;
  const auto scale = config.is("model.init_scale", "depth") ? model::InitScale::kDepth : model::InitScale::kQwen2;
  return {model_config(config, dataset.tokenizer.size()), static_cast<uint64_t>(config.integer("train.seed")), device,
          scale};
}

class Run {
 public:
  Run(const io::Config& config, const Dataset& dataset, const RunOptions& options)
      : options_(options), dataset_(dataset), folder_(config.string("run.out")), lock_(folder_) {
    expect_place_for_run(folder_, options.resume);
    const auto stored = stored_config(folder_);
    check(config);
    set_up_torch(config);
    config_ = config;
    resolve(*config_, dataset.tokenizer.size());
    if (stored) refuse_other_run(*config_, *stored, folder_);
    const auto device = device_of(config.string("run.device"));
    reset_peak_memory(device);
    trainer_.emplace(*config_, dataset, make_model(*config_, dataset, device));
  }

  RunResult operator()() {
    begin();
    RunResult result;
    const auto steps = config_->integer("train.steps");
    while (state_.step < steps) {
      if (options_.stop != nullptr && *options_.stop != 0) {
        result.status = RunStatus::kInterrupted;
        break;
      }
      const auto record = one_step();
      if (state_.skipped_in_row >= config_->integer("train.max_skips")) {
        result.status = RunStatus::kDiverged;
        result.diagnosis = diagnosis(record);
        break;
      }
    }
    return end(std::move(result));
  }

 private:
  void begin() {
    state_.initial_weights = weights_hash(trainer_->model());
    state_.data = dataset_.train.identity().recipe;
    const bool resumed = options_.resume && resume();
    dataset_.tokenizer.save(folder_ / "tokenizer.json");
    if (!resumed) write_record(folder_, {state_.data, std::nullopt});
    io::write_file_atomically(folder_ / "config.toml", config_->to_toml());
    fs::remove(folder_ / "summary.json");
    metrics_.emplace(folder_, state_.step, config_->boolean("metrics.tensorboard"));
    metrics_->text("config", "```\n" + config_->to_toml() + "```");
    saved_step_ = state_.step;
  }

  bool resume() {  // false: there is no checkpoint
    const auto resumed = load_checkpoint(folder_, *trainer_);
    if (!resumed.state) refuse_lost_checkpoints(resumed.skipped);
    for (const auto& skipped : resumed.skipped)
      note(fmt::format("skipped {}: {}", skipped.path.filename().string(), skipped.reason));
    if (!resumed.state) {
      if (stored_config(folder_)) note("the run stopped before its first checkpoint; training starts at step 1");
      return false;
    }
    if (resumed.state->data != state_.data) {
      throw Error(fmt::format(
          "{}: cannot resume: the training text or its tokenizer has changed since the run began (was {}, is {})",
          folder_.string(), resumed.state->data, state_.data));
    }
    if (resumed.state->initial_weights != state_.initial_weights) {
      throw Error(
          fmt::format("{}: cannot resume: the initial weights differ from those the run began with", folder_.string()));
    }
    state_ = *resumed.state;
    note(fmt::format("resumed at step {}", state_.step));
    return true;
  }

  // A run that stopped before its first checkpoint begins again; one that had any must not, for what it learned would
  // be overwritten.
  void refuse_lost_checkpoints(const std::vector<io::SkippedCheckpoint>& skipped) const {
    std::vector<std::string> faults;
    for (const auto& checkpoint : skipped) {
      if (!checkpoint.unfinished)
        faults.push_back(fmt::format("{}: {}", checkpoint.path.filename().string(), checkpoint.reason));
    }
    const auto record = read_record(folder_);
    if (faults.empty() && record && record->checkpoint) faults.push_back(*record->checkpoint + ": it is gone");
    if (faults.empty()) return;
    throw Error(
        fmt::format("{}: cannot resume: no checkpoint can be used ({}); restore one, or begin anew in another folder "
                    "(--out) or after removing this one",
                    folder_.string(), fmt::join(faults, "; ")));
  }

  StepRecord one_step() {
    const int64_t step = state_.step + 1;
    auto record = trainer_->step(step);
    state_.step = step;
    state_.tokens += trainer_->step_tokens();
    state_.seconds += record.step_ms / 1e3;
    state_.batches = io::hash_bytes(state_.batches + record.batch);
    state_.skipped += record.skipped ? 1 : 0;
    state_.skipped_in_row = record.skipped ? state_.skipped_in_row + 1 : 0;
    if (record.skipped) note(fmt::format("step {}: {}; skipped, nothing changed", step, what_is_not_finite(record)));
    record.tokens = state_.tokens;
    record.seconds = state_.seconds;

    const bool last = step == config_->integer("train.steps");
    if (last || due(step, "train.eval_every")) {
      record.val_loss = last_val_loss_ = trainer_->evaluate();
      record.weight_norm = trainer_->weight_norm();
    }
    if (!record.skipped && due(step, "metrics.spectra_every")) metrics_->write(step, trainer_->spectra());
    metrics_->write(record);
    if (!last && due(step, "checkpoint.every")) save();
    report(record);
    return record;
  }

  bool due(int64_t step, const char* key) const {
    const auto every = config_->integer(key);
    return every > 0 && step % every == 0;
  }

  static std::string what_is_not_finite(const StepRecord& record) {
    const std::string what =
        std::isfinite(record.loss) ? "the norm of the gradient is not finite" : "the loss is not finite";
    return record.culprit.empty() ? what : what + ", first in " + record.culprit;
  }

  std::string diagnosis(const StepRecord& record) const {
    return fmt::format(
        "stopped at step {}: {} steps in a row were not finite ({}); the weights are those of step {}. A lower "
        "optimizer.lr or optimizer.aux_lr, "
        "a longer schedule.warmup or a smaller train.clip usually helps",
        record.step, state_.skipped_in_row, what_is_not_finite(record), record.step - state_.skipped_in_row);
  }

  void save() {
    trainer_->release_gradients();
    metrics_->sync();
    const auto checkpoint = save_checkpoint(folder_, *trainer_, state_, config_->integer("checkpoint.keep"));
    write_record(folder_, {state_.data, checkpoint.filename().string()});
    saved_step_ = state_.step;
  }

  // The last evaluation sees the weights after the last step, which no guard looked at.
  void check_end(RunResult& result) const {
    if (result.status != RunStatus::kFinished || ends_finite(folder_ / "metrics.jsonl")) return;
    result.status = RunStatus::kDiverged;
    result.diagnosis = fmt::format(
        "diverged: after all {} steps the loss is not finite. A lower optimizer.lr or optimizer.aux_lr, a longer "
        "schedule.warmup or a smaller train.clip usually helps",
        state_.step);
  }

  RunResult end(RunResult result) {
    trainer_->release_gradients();
    if (saved_step_ != state_.step || state_.step == 0 ||
        !fs::exists(folder_ / "checkpoints" / io::checkpoint_name(state_.step)))
      save();
    result.step = state_.step;
    check_end(result);
    result.summary = summarize(folder_, *trainer_, dataset_, state_, result);
    io::write_file_atomically(folder_ / "summary.json", result.summary.dump(2) + "\n");
    write_run_page(folder_);
    return result;
  }

  void report(const StepRecord& record) {
    recent_.push_back({record.step_ms, record.optimizer_ms});
    if (recent_.size() > 20) recent_.pop_front();
    if (!options_.progress) return;
    double step_ms = 0, optimizer_ms = 0;
    for (const auto& [step, optimizer] : recent_) step_ms += step, optimizer_ms += optimizer;
    const auto count = static_cast<double>(recent_.size());
    const auto steps = config_->integer("train.steps");
    options_.progress({.step = record.step,
                       .steps = steps,
                       .loss = record.loss,
                       .val_loss = last_val_loss_,
                       .tokens_per_s = 1e3 * static_cast<double>(trainer_->step_tokens()) * count / step_ms,
                       .optimizer_share = optimizer_ms / step_ms,
                       .eta_s = static_cast<double>(steps - record.step) * step_ms / count / 1e3,
                       .skipped = state_.skipped});
  }

  void note(const std::string& text) const {
    if (options_.note) options_.note(text);
  }

  const RunOptions& options_;
  const Dataset& dataset_;
  fs::path folder_;
  data::OutputFolder lock_;
  std::optional<io::Config> config_;
  std::optional<Trainer> trainer_;
  std::optional<MetricsWriter> metrics_;
  RunState state_;
  int64_t saved_step_ = 0;
  std::optional<double> last_val_loss_;
  std::deque<std::pair<double, double>> recent_;  // step and optimizer, in ms
};

}  // namespace

RunResult run(const io::Config& config, const Dataset& dataset, const RunOptions& options) {
  return Run(config, dataset, options)();
}

}  // namespace prism::train
