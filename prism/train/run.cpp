#include "prism/train/run.h"

#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <map>

#include "prism/io/error.h"
#include "prism/io/folder_lock.h"
#include "prism/io/hash.h"
#include "prism/io/json_fields.h"
#include "prism/io/spelling.h"
#include "prism/model/hugging_face.h"
#include "prism/train/checkpoint.h"
#include "prism/train/config.h"
#include "prism/train/estimate.h"
#include "prism/train/machine.h"
#include "prism/train/run_fields.h"
#include "prism/train/run_folder.h"
#include "prism/train/run_page.h"
#include "prism/train/summary.h"
#include "prism/train/time_left.h"

namespace prism::train {
namespace {

namespace fs = std::filesystem;

model::Qwen2 make_model(const io::Config& config, const Dataset& dataset, at::Device device) {
  const auto init = config.string("model.init");
  if (!init.empty()) return model::import_hugging_face(init, device).model;
  const auto scale = config.is("model.init_scale", "depth") ? model::InitScale::Depth : model::InitScale::Qwen2;
  return {model_config(config, dataset.tokenizer.size()), static_cast<uint64_t>(config.integer("train.seed")), device,
          scale};
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr const char* kAdvice =
    "A lower optimizer.lr or optimizer.aux_lr, a longer schedule.warmup or a smaller train.clip usually helps";

// Keeps records of steps for the page of a run in progress: all at first, then every second, every fourth, and so on,
// so that memory does not grow with the length of the run.
class ThinnedRecords {
 public:
  void add(const StepRecord& record) {
    if (seen_++ % stride_ != 0) return;
    records_.push_back(record);
    if (records_.size() < kMost) return;
    for (size_t i = 0; 2 * i < records_.size(); ++i) records_[i] = std::move(records_[2 * i]);
    records_.resize((records_.size() + 1) / 2);
    stride_ *= 2;
  }
  const std::vector<StepRecord>& records() const { return records_; }

 private:
  static constexpr size_t kMost = 1024;
  std::vector<StepRecord> records_;
  int64_t seen_ = 0, stride_ = 1;
};

// Returns the records of both, each step once, in order.
std::vector<StepRecord> merged(const ThinnedRecords& left, const ThinnedRecords& right) {
  std::map<int64_t, StepRecord> by_step;
  for (const auto* thinned : {&left, &right}) {
    for (const auto& record : thinned->records()) by_step.emplace(record.step, record);
  }
  std::vector<StepRecord> result;
  for (auto& [step, record] : by_step) result.push_back(std::move(record));
  return result;
}

class Run {
 public:
  Run(const io::Config& config, const Dataset& dataset, const RunOptions& options)
      : options_(options), processes_(options.processes), dataset_(dataset), folder_{config.string("run.out")} {
    processes_->set_timeout(dist::Communicator::Seconds(config.integer("run.peer_timeout")));
    dist::together(*processes_, [&] { prepare(config); });
    left_.emplace(*config_, trainer_->eval_sequences());
    state_bytes_ = trainer_->state_bytes();  // computed once, because it copies the state
  }

  RunSummary operator()() {
    begin();
    RunSummary result;
    result.status = train();
    result.stopped_early = result.status == RunStatus::Finished && state_.step < config_->integer("train.steps");
    return end(std::move(result));
  }

 private:
  void prepare(const io::Config& config) {
    if (writes()) lock_.emplace(folder_.path);
    folder_.check_can_train(options_.resume);
    const auto stored = folder_.config();
    check(config);
    set_up_torch(config);
    config_ = config;
    resolve(*config_, dataset_.tokenizer.size());
    if (stored) check_same_run(*config_, *stored, folder_.path);
    if (stored) old_steps_ = stored->integer("train.steps");
    const auto device = device_of(config.string("run.device"));
    doing("making the model");
    reset_peak_memory(device);
    trainer_.emplace(*config_, dataset_, make_model(*config_, dataset_, device), processes_);
  }

  bool writes() const { return processes_->rank() == 0; }

  // With several processes, all see at the same step that one of them is to stop.
  bool stops() const {
    if (processes_->is_distributed()) return trainer_->stop_requested();
    return options_.stop != nullptr && *options_.stop != 0;
  }

  void begin() {
    state_.initial_weights = weights_hash(trainer_->model());
    state_.data = dataset_.train.identity().recipe;
    dist::expect_equal(*processes_, "training data", state_.data);
    dist::expect_equal(*processes_, "initial weights", state_.initial_weights);
    bool resumed = false;
    dist::together(*processes_, [&] { resumed = options_.resume && resume(); });
    dist::expect_equal(*processes_, "checkpoint", std::to_string(state_.step));
    dist::together(*processes_, [&] {
      if (writes()) write_beginning(resumed);
    });
    Tensor judged = at::tensor({best_val_loss_, static_cast<double>(worse_)}, at::kDouble).to(processes_->device());
    processes_->broadcast(judged, 0);
    best_val_loss_ = judged[0].item<double>();
    worse_ = static_cast<int64_t>(judged[1].item<double>());
    saved_step_ = state_.step;
  }

  void write_beginning(bool resumed) {
    dataset_.tokenizer.save(folder_.tokenizer_file());
    if (!resumed) folder_.write({state_.data, std::nullopt});
    io::write_file_atomically(folder_.config_file(), config_->to_toml());
    fs::remove(folder_.summary_file());
    metrics_.emplace(folder_, state_.step,
                     MetricsWriter::Files{config_->boolean("metrics.csv"), config_->boolean("metrics.tensorboard")});
    note_missing_lines(folder_.metrics_file(), state_.step, metrics_->lines_of_metrics());
    note_missing_lines(folder_.spectra_file(), state_.spectra, metrics_->lines_of_spectra());
    for (auto& record : metrics_->take_earlier()) {
      if (record.val_loss) judge(*record.val_loss);
      remember(std::move(record));
    }
    metrics_->text("config", "```\n" + config_->to_toml() + "```");
  }

  void note_missing_lines(const fs::path& file, int64_t expected, int64_t found) const {
    if (found >= expected) return;
    note(fmt::format("{}: {} of {} lines are missing; the run continues without them", file.string(), expected - found,
                     expected));
  }

  bool resume() {  // returns false if no checkpoint was ever saved
    doing("reading the checkpoint");
    const auto resumed = load_checkpoint(folder_, *trainer_);
    if (!resumed.state) refuse_lost_checkpoints(resumed.skipped);
    for (const auto& skipped : resumed.skipped)
      note(fmt::format("skipped {}: {}", skipped.path.filename().string(), skipped.reason));
    if (!resumed.state) {
      if (folder_.config()) note("the run stopped before its first checkpoint; training starts at step 1");
      return false;
    }
    if (resumed.state->data != state_.data) {
      throw Error(fmt::format(
          "{}: cannot resume: the training text or its tokenizer has changed since the run began (was {}, is {})",
          folder_.path.string(), resumed.state->data, state_.data));
    }
    if (resumed.state->initial_weights != state_.initial_weights) {
      throw Error(fmt::format("{}: cannot resume: the initial weights differ from those the run began with",
                              folder_.path.string()));
    }
    state_ = *resumed.state;
    if (writes()) {  // a run that ended has no checkpoint left to write, and nothing else would remove them
      io::remove_abandoned_checkpoints(folder_.checkpoints());
      io::remove_abandoned_checkpoints(folder_.best());
    }
    note(fmt::format("resumed at step {}", state_.step));
    check_steps();
    return true;
  }

  // Adds a note if another train.steps moves the schedule so that the learning rate jumps.
  void check_steps() const {
    const auto steps = config_->integer("train.steps");
    if (state_.step > steps) {
      throw Error(fmt::format("{}: expected at least {}, the steps already done, got {}", config_->where("train.steps"),
                              state_.step, steps));
    }
    if (!old_steps_ || *old_steps_ == steps || state_.step == steps) return;
    auto old = *config_;
    old.assign("train.steps", *old_steps_, "config.toml");
    const auto was = schedule(old), is = schedule(*config_);
    if (std::abs(was(state_.step) - is(state_.step)) <= 0.01) return;
    const double lr = config_->real("optimizer.lr");
    note(fmt::format(
        "warning: train.steps changed from {} to {}, so the learning rate jumps from {:.4g} at step {} to {:.4g} at "
        "step {}; it does not if schedule.kind is \"constant\", or \"wsd\" before its decay",
        *old_steps_, steps, was(state_.step) * lr, state_.step, is(state_.step + 1) * lr, state_.step + 1));
  }

  // Every condition to stop follows from a checkpoint and the metrics before it, so a run that is killed after its last
  // step trains no further when it is resumed.
  RunStatus train() {
    while (state_.step < config_->integer("train.steps") && !out_of_patience() && !has_diverged()) {
      if (stops()) return RunStatus::Interrupted;
      one_step();
    }
    return has_diverged() ? RunStatus::Diverged : RunStatus::Finished;
  }

  bool has_diverged() const { return state_.skipped_in_row >= config_->integer("train.max_skips"); }

  void remember(StepRecord record) {
    record.norms.clear();  // the page does not show these three
    record.batch.clear();
    record.culprit.clear();
    steps_.add(record);
    if (record.val_loss) evaluations_.add(record);
  }

  // Counts evaluations in a row without a better held-out loss. Returns true if this one is better.
  bool judge(double val_loss) {
    const bool better = std::isfinite(val_loss) && val_loss < best_val_loss_;
    if (better) best_val_loss_ = val_loss;
    worse_ = better ? 0 : worse_ + 1;
    return better;
  }

  bool out_of_patience() const {
    const auto patience = config_->integer("train.patience");
    return patience > 0 && worse_ >= patience;
  }

  // Throws prism::Error if the run ever had a checkpoint: beginning again would overwrite what it has learned.
  void refuse_lost_checkpoints(const std::vector<io::SkippedCheckpoint>& skipped) const {
    std::vector<std::string> faults;
    for (const auto& checkpoint : skipped) {
      if (!checkpoint.unfinished)
        faults.push_back(fmt::format("{}: {}", checkpoint.path.filename().string(), checkpoint.reason));
    }
    const auto record = folder_.record();
    if (faults.empty() && record && record->checkpoint) faults.push_back(*record->checkpoint + ": missing");
    if (faults.empty()) return;
    throw Error(
        fmt::format("{}: cannot resume: no checkpoint can be used ({}); restore one, remove this folder, or train in "
                    "another one (--out)",
                    folder_.path.string(), fmt::join(faults, "; ")));
  }

  void one_step() {
    const int64_t step = state_.step + 1;
    if (!reported_ || trainer_->will_capture())  // later steps report progress instead
      doing(fmt::format("step {}{}", step, trainer_->will_capture() ? ": capturing it in a CUDA graph" : ""));
    auto record = trainer_->step(step, options_.stop != nullptr && *options_.stop != 0);
    left_->add_step(record.step_ms / 1e3, record.optimizer_ms / 1e3);
    state_.step = step;
    state_.tokens += trainer_->step_tokens();
    state_.seconds += record.step_ms / 1e3;
    state_.batches = io::hash_bytes(state_.batches + record.batch);
    state_.skipped += record.skipped ? 1 : 0;
    state_.skipped_in_row = record.skipped ? state_.skipped_in_row + 1 : 0;
    if (record.skipped)
      note(fmt::format("step {} skipped: {}; the weights are unchanged", step, what_is_not_finite(record)));
    record.tokens = state_.tokens;
    record.seconds = state_.seconds;

    const bool last = step == config_->integer("train.steps");
    if (last || due(step, "train.eval_every")) {
      timed(TimeLeft::kEvaluation, "evaluating", [&] {
        record.val_loss = last_val_loss_ = trainer_->evaluate();
        record.weight_norm = trainer_->weight_norm();
        const bool best = judge(*record.val_loss);
        if (best && writes() && config_->boolean("checkpoint.best")) save_best(folder_, *trainer_, state_);
      });
    }
    if (!record.skipped && due(step, "metrics.spectra_every"))
      timed(TimeLeft::kSpectra, "recording spectra", [&] {
        const auto spectra = trainer_->spectra(step);
        state_.spectra += static_cast<int64_t>(spectra.size());
        if (writes()) metrics_->write(spectra);
      });
    if (writes()) metrics_->write(record);
    remember(record);
    if (!last && due(step, "checkpoint.every")) save();
    if (writes() && !last && record.val_loss) {
      doing(fmt::format("step {}: writing the page", step));
      write_page_so_far();
    }
    report(record);
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

  void save() {
    timed(TimeLeft::kCheckpoint, "saving a checkpoint", [&] {
      trainer_->release_gradients();
      saved_step_ = state_.step;
      if (!writes() && !trainer_->is_owned()) return;
      const auto optimizer = trainer_->optimizer_state();
      if (!writes()) return;
      metrics_->sync();
      const auto checkpoint =
          save_checkpoint(folder_, *trainer_, optimizer, state_, config_->integer("checkpoint.keep"));
      folder_.write({state_.data, checkpoint.filename().string()});
    });
  }

  // Returns the answer of the process that writes.
  bool must_save() {
    const bool saved = saved_step_ == state_.step && state_.step > 0 &&
                       fs::exists(folder_.checkpoints() / io::checkpoint_name(state_.step));
    Tensor answer = at::tensor({saved ? 0 : 1}, at::kInt).to(processes_->device());
    processes_->broadcast(answer, 0);
    return answer.item<int>() != 0;
  }

  template <typename Work>
  void timed(TimeLeft::Part part, const char* name, const Work& work) {
    doing(fmt::format("step {}: {}", state_.step, name));
    const auto begin = std::chrono::steady_clock::now();
    work();
    left_->add(part, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }

  // Diagnoses a diverged run. Also marks a run as diverged if its last loss is not finite: the guard does not see the
  // weights after the last step.
  void check_end(const std::vector<StepRecord>& metrics, RunSummary& result) const {
    if (result.status == RunStatus::Diverged) {
      const auto skipped = state_.skipped_in_row;
      result.diagnosis =
          fmt::format("stopped at step {}: {} not finite{}; the weights are those of step {}. {}", state_.step,
                      skipped == 1 ? "it was" : fmt::format("{} steps in a row were", skipped),
                      metrics.empty() ? "" : fmt::format(" ({})", what_is_not_finite(metrics.back())),
                      state_.step - skipped, kAdvice);
    } else if (result.status == RunStatus::Finished && !has_finite_losses(metrics)) {
      result.status = RunStatus::Diverged;
      result.diagnosis =
          fmt::format("diverged: after {} the loss is not finite. {}", io::counted(state_.step, "step"), kAdvice);
    }
  }

  RunSummary end(RunSummary result) {
    trainer_->release_gradients();
    if (must_save()) save();
    if (!writes()) return result;
    doing("writing the summary and the page");
    RunData data{std::move(result), folder_.metrics(), folder_.spectra()};
    check_end(data.metrics, data.summary);
    summarize(data.metrics, *trainer_, dataset_, state_, state_bytes_, data.summary);
    report::write(page_document(folder_, data), folder_.page_file());
    io::write_json(data.summary, folder_.summary_file());  // last: it marks the end of the run
    return std::move(data.summary);
  }

  // Uses the thinned records and no spectra, so that the cost does not grow with the length of the run.
  void write_page_so_far() {
    RunData data{{}, merged(steps_, evaluations_), {}};
    data.summary.status = RunStatus::Running;
    summarize(data.metrics, *trainer_, dataset_, state_, state_bytes_, data.summary);
    report::write(page_document(folder_, data), folder_.page_file());
  }

  void report(const StepRecord& record) {
    reported_ = true;
    if (!options_.progress) return;
    options_.progress({.step = record.step,
                       .steps = config_->integer("train.steps"),
                       .loss = record.loss,
                       .val_loss = last_val_loss_,
                       .tokens_per_s = static_cast<double>(trainer_->step_tokens()) / left_->step_seconds(),
                       .optimizer_share = left_->optimizer_seconds() / left_->step_seconds(),
                       .eta_s = left_->seconds(record.step),
                       .skipped = state_.skipped});
  }

  void doing(const std::string& text) const {
    if (options_.doing) options_.doing(text);
  }

  void note(const std::string& text) const {
    if (options_.note) options_.note(text);
  }

  const RunOptions& options_;
  std::shared_ptr<dist::Communicator> processes_;
  const Dataset& dataset_;
  RunFolder folder_;
  std::optional<io::FolderLock> lock_;  // of the process that writes
  std::optional<io::Config> config_;
  std::optional<Trainer> trainer_;
  std::optional<MetricsWriter> metrics_;
  RunState state_;
  int64_t state_bytes_ = 0;  // of the optimizer
  int64_t saved_step_ = 0;
  std::optional<int64_t> old_steps_;  // of the run that is resumed
  std::optional<double> last_val_loss_;
  double best_val_loss_ = kInfinity;
  int64_t worse_ = 0;  // evaluations since the best
  ThinnedRecords steps_, evaluations_;
  std::optional<TimeLeft> left_;
  bool reported_ = false;  // this call has reported a step
};

}  // namespace

RunSummary run(const io::Config& config, const Dataset& dataset, const RunOptions& options) {
  return Run(config, dataset, options)();
}

}  // namespace prism::train
