#include "prism/reproduce/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "prism/train/config.h"
#include "prism/train/machine.h"
#include "prism/train/run_folder.h"
#include "prism/train/summary.h"

namespace prism::reproduce {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

double tokens_of(const json& settings) {
  return settings.at("train.steps").get<double>() * settings.at("train.batch").get<double>() *
         settings.at("train.context").get<double>();
}

bool same_under(const json& ours, const json& theirs, std::string_view prefix) {
  for (const auto& [key, value] : ours.items()) {
    if (key.starts_with(prefix) && theirs.value(key, json()) != value) return false;
  }
  return true;
}

// The factor by which a training step on a GPU takes longer if the optimizer has no kernels for the options. Measured
// with side = "both" on a 22M model.
constexpr double kWithoutKernels = 6;

bool has_kernels(const io::Config& config) { return train::optimizer_options(config).matrices->can_be_captured(); }

// Returns the tokens times the median of seconds per token over runs in the pool with the same device and model: those
// with the same optimizer and batch if there are any, otherwise all.
double estimated_seconds(const compare::PlannedRun& planned, const RunKey& key, const Pool& pool,
                         double nominal_tokens_per_s) {
  std::vector<double> alike, others;
  for (const auto& [hash, run] : pool.runs()) {
    const auto& theirs = run.key.settings;
    if (run.key.device != key.device || !same_under(key.settings, theirs, "model.")) continue;
    const double per_token = run.summary.wall_seconds.value_or(0) / static_cast<double>(run.summary.tokens);
    const bool is_alike =
        same_under(key.settings, theirs, "train.batch") && same_under(key.settings, theirs, "optimizer.name") &&
        same_under(key.settings, theirs, "optimizer.side") && same_under(key.settings, theirs, "optimizer.covariance");
    (is_alike ? alike : others).push_back(per_token);
  }
  const double tokens = tokens_of(key.settings);
  if (!alike.empty()) return tokens * train::median(alike);
  const double slower = key.device == "cuda" && !has_kernels(planned.config) ? kWithoutKernels : 1;
  return tokens * slower * (others.empty() ? 1 / nominal_tokens_per_s : train::median(others));
}

// Returns the configuration of one training run, without the keys of experiments and comparisons.
io::Config run_config(const io::Config& planned, const fs::path& folder) {
  auto config = train::make_config();
  for (const auto& key : config.table().keys()) {
    const auto& name = key.name();
    if (planned.is_given(name) && !name.starts_with("compare."))
      config.assign(name, planned.value(name), planned.where(name));
  }
  config.assign("run.out", folder.string(), "--pool");
  return config;
}

compare::RunOutcome outcome_of(const compare::PlannedRun& planned, const StoredRun& stored) {
  compare::RunOutcome outcome{.contender = planned.contender,
                              .lr = planned.lr,
                              .seed = planned.seed,
                              .folder = stored.file_name(),
                              .summary = stored.summary,
                              .diverged = stored.stability.diverged.has_value(),
                              .page = stored.curves};
  outcome.loss = outcome.diverged ? compare::kInfinity : compare::finite_or_infinity(stored.summary.val_loss);
  const auto& val = stored.curves.val;
  outcome.eval_tokens.assign(val.tokens.begin(), val.tokens.end());
  outcome.eval_seconds = val.seconds;
  for (const double loss : val.loss) outcome.eval_losses.push_back(compare::finite_or_infinity(loss));
  // The curve is rounded; its last point is the final loss, which is not.
  if (!val.empty() && !outcome.diverged) outcome.eval_losses.back() = outcome.loss;
  // One hash covers all batches. A stopped run saw fewer, so its hash is not compared.
  if (stored.summary.status == train::RunStatus::Finished) outcome.batches = {stored.summary.batches};
  return outcome;
}

}  // namespace

Setup setup_of(const std::vector<Experiment>& experiments, const train::Dataset& dataset) {
  const auto device = train::device_of(experiments.front().plan.config().string("run.device"));
  return {dataset.train.identity().recipe, device.is_cuda() ? "cuda" : "cpu"};
}

RunKey key_of(const compare::PlannedRun& run, const Setup& setup) {
  return {.settings = key_settings(run.config), .data = setup.data, .device = setup.device};
}

const StoredRun* find(const Pool& pool, const compare::PlannedRun& run, const Setup& setup) {
  const auto* stored = pool.find(key_of(run, setup));
  // A run's key does not say what it records, so a run may be in the pool without spectra.
  const bool wanted = run.config.integer("metrics.spectra_every") > 0;
  return stored != nullptr && wanted && stored->spectra.empty() ? nullptr : stored;
}

State state_of(const Experiment& experiment, const Pool& pool, const Setup& setup) {
  State state;
  const auto& plan = experiment.plan;
  const auto look_up = [&](const compare::PlannedRun& planned) {
    if (const auto* stored = find(pool, planned, setup)) {
      state.outcomes.push_back(outcome_of(planned, *stored));
      return true;
    }
    auto key = key_of(planned, setup);
    const double seconds = estimated_seconds(planned, key, pool, nominal_tokens_per_s(experiment));
    state.missing.push_back({planned, compare::name_of(plan, planned), std::move(key), seconds});
    return false;
  };
  std::set<size_t> incomplete;
  for (const auto& planned : plan.sweep()) {
    if (!look_up(planned)) incomplete.insert(planned.contender);
  }
  for (size_t contender = 0; contender < plan.contenders().size(); ++contender) {
    const auto others = static_cast<int64_t>(plan.seeds().size()) - 1;
    if (incomplete.contains(contender)) {
      state.later += others;
      continue;
    }
    const auto lr = compare::best_rate(plan, contender, state.outcomes);
    for (int64_t i = 1; lr && i <= others; ++i) look_up(plan.run(contender, *lr, plan.seeds()[static_cast<size_t>(i)]));
  }
  return state;
}

// Runs whose times differ by less than this factor count as equally long.
constexpr double kAboutEqual = 1.5;

std::vector<MissingRun> missing_runs(const std::vector<Experiment>& experiments, const Pool& pool, const Setup& setup) {
  std::vector<MissingRun> missing;
  std::set<std::string> seen;
  for (const auto& experiment : experiments) {
    for (auto& run : state_of(experiment, pool, setup).missing) {
      if (seen.insert(run.key.hash()).second) missing.push_back(std::move(run));
    }
  }
  std::vector<double> limits;  // longest time of each group of about equally long runs
  std::vector<double> seconds;
  for (const auto& run : missing) seconds.push_back(run.seconds);
  std::sort(seconds.begin(), seconds.end());
  for (const double s : seconds) {
    if (limits.empty() || s > limits.back()) limits.push_back(kAboutEqual * s);
  }
  const auto group = [&](const MissingRun& run) {
    return std::lower_bound(limits.begin(), limits.end(), run.seconds) - limits.begin();
  };
  std::stable_sort(missing.begin(), missing.end(), [&](const auto& a, const auto& b) { return group(a) < group(b); });
  return missing;
}

std::optional<Setup> most_common_setup(const std::vector<Experiment>& experiments, const Pool& pool) {
  std::set<std::string> wanted;
  for (const auto& experiment : experiments) {
    for (const auto& planned : experiment.plan.sweep()) wanted.insert(key_of(planned, {}).settings_hash());
  }
  std::map<std::pair<std::string, std::string>, int64_t> counts;
  for (const auto& [hash, run] : pool.runs()) {
    if (wanted.contains(run.key.settings_hash())) ++counts[{run.key.data, run.key.device}];
  }
  if (counts.empty()) return std::nullopt;
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return Setup{most->first.first, most->first.second};
}

namespace {

class Runner {
 public:
  Runner(const std::vector<Experiment>& experiments, Pool& pool, const train::Dataset& dataset,
         const RunnerOptions& options)
      : experiments_(experiments),
        pool_(pool),
        dataset_(dataset),
        options_(options),
        setup_(setup_of(experiments, dataset)),
        entropy_(unigram_entropy(dataset.train)) {}

  RunnerEnd operator()() {
    while (true) {
      missing_ = missing_runs(experiments_, pool_, setup_);
      if (missing_.empty()) return RunnerEnd::Complete;
      if (signaled()) return RunnerEnd::Interrupted;
      const auto& next = missing_.front();
      if (options_.seconds > 0 && next.seconds > seconds_left() && !ahead_.contains(next.key.hash())) {
        note(fmt::format("{} needs about {:.0f} s; time left: {:.0f} s", next.name, next.seconds,
                         std::max(0.0, seconds_left())));
        return RunnerEnd::OutOfTime;
      }
      if ((options_.ahead && !make_ahead()) || !make(next))
        return signaled() ? RunnerEnd::Interrupted : RunnerEnd::OutOfTime;
      ++done_;
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Trains all missing runs that should finish in time, except those that this call already passed to `ahead`; `make`
  // then stores them one by one. Returns false if it was stopped.
  bool make_ahead() {
    std::vector<std::pair<std::string, io::Config>> runs;
    for (const auto& missing : missing_) {
      if (options_.seconds > 0 && missing.seconds > seconds_left()) continue;
      if (!ahead_.insert(missing.key.hash()).second) continue;
      runs.emplace_back(missing.name, run_config(missing.run.config, pool_.run_folder(missing.key)));
    }
    return runs.empty() || options_.ahead(runs, [&] { return options_.seconds > 0 && seconds_left() <= 0; });
  }

  // Trains a run unless its folder holds a finished one, and stores it. Returns false if it was stopped.
  bool make(const MissingRun& missing) {
    const train::RunFolder run{pool_.run_folder(missing.key)};
    stop_ = 0;
    train::RunOptions options;
    options.resume = true;
    options.stop = &stop_;
    options.note = [&](const std::string& text) { note(missing.name + ": " + text); };
    options.progress = [&](const train::RunProgress& progress) {
      if (signaled() || (options_.seconds > 0 && seconds_left() <= 0)) stop_ = 1;
      report(missing, progress);
    };
    const auto begin = Clock::now();
    if (!run.has_ended()) {
      const auto result = train::run(run_config(missing.run.config, run.path), dataset_, options);
      if (result.status == train::RunStatus::Interrupted) return false;
    }
    pool_.add(read_run(missing.key, run, entropy_, seconds_since(begin)));
    if (!options_.keep_runs) fs::remove_all(run.path);
    return true;
  }

  void report(const MissingRun& missing, const train::RunProgress& inner) const {
    if (!options_.progress) return;
    double others = 0;
    for (size_t i = 1; i < missing_.size(); ++i) others += missing_[i].seconds;
    options_.progress({done_, missing_.size(), missing.name, inner, inner.eta_s + others});
  }

  bool signaled() const { return options_.stop != nullptr && *options_.stop != 0; }
  static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }
  double seconds_left() const { return options_.seconds - seconds_since(begin_); }
  void note(const std::string& text) const {
    if (options_.note) options_.note(text);
  }

  const std::vector<Experiment>& experiments_;
  Pool& pool_;
  const train::Dataset& dataset_;
  const RunnerOptions& options_;
  Setup setup_;
  double entropy_;
  Clock::time_point begin_ = Clock::now();
  std::vector<MissingRun> missing_;
  std::set<std::string> ahead_;  // keys of runs passed to options_.ahead
  size_t done_ = 0;
  std::atomic<int> stop_ = 0;
};

}  // namespace

RunnerEnd make_runs(const std::vector<Experiment>& experiments, Pool& pool, const train::Dataset& dataset,
                    const RunnerOptions& options) {
  return Runner(experiments, pool, dataset, options)();
}

}  // namespace prism::reproduce
