#include "prism/compare/compare.h"

#include <fmt/format.h>

#include <algorithm>

#include "prism/io/atomic_file.h"
#include "prism/io/checkpoint.h"
#include "prism/io/error.h"
#include "prism/io/folder_lock.h"
#include "prism/io/json_fields.h"
#include "prism/model/generate.h"
#include "prism/model/hugging_face.h"
#include "prism/train/config.h"
#include "prism/train/machine.h"
#include "prism/train/run_folder.h"

namespace prism::compare {
namespace {

namespace fs = std::filesystem;

bool has_ended(const PlannedRun& run) { return train::RunFolder{run.folder}.has_ended(); }

// Returns the runs that follow the sweep: every contender at its best rate with the other seeds.
std::vector<PlannedRun> at_best_rates(const Plan& plan, const std::vector<RunOutcome>& sweep) {
  std::vector<PlannedRun> runs;
  for (size_t contender = 0; contender < plan.contenders().size(); ++contender) {
    const auto lr = best_rate(plan, contender, sweep);
    for (size_t i = 1; lr && i < plan.seeds().size(); ++i) runs.push_back(plan.run(contender, *lr, plan.seeds()[i]));
  }
  return runs;
}

class Runner {
 public:
  Runner(const Plan& plan, const train::Dataset& dataset, const CompareOptions& options)
      : plan_(plan), dataset_(dataset), options_(options) {}

  bool run_all() {  // returns false if interrupted
    if (!run_each(plan_.sweep())) return false;
    const auto others = at_best_rates(plan_, outcomes_);
    total_ = index_ + others.size();
    return run_each(others);
  }

  std::vector<RunOutcome> outcomes() && { return std::move(outcomes_); }

 private:
  bool run_each(const std::vector<PlannedRun>& runs) {
    if (options_.ahead) {
      auto missing = runs;
      std::erase_if(missing, has_ended);
      if (!options_.ahead(missing)) return false;
    }
    return std::ranges::all_of(runs, [&](const auto& planned) { return run_one(planned); });
  }

  bool run_one(const PlannedRun& planned) {
    ++index_;
    if (!has_ended(planned)) {
      train::RunOptions options;
      options.resume = true;
      options.stop = options_.stop;
      options.progress = [&](const train::RunProgress& progress) { report(planned, progress); };
      const auto name = name_of(plan_, planned);
      options.note = [&](const std::string& text) { note(name + ": " + text); };
      options.doing = [&](const std::string& text) {
        if (options_.doing) options_.doing(fmt::format("run {}/{}  {}  {}", index_, total_, name, text));
      };
      const auto result = train::run(planned.config, dataset_, options);
      if (result.status == train::RunStatus::Interrupted) return false;
      if (result.status == train::RunStatus::Diverged) note(name + ": diverged; " + result.diagnosis);
    }
    outcomes_.push_back(read_outcome(planned));
    seconds_ += outcomes_.back().summary.timing.seconds;
    Comparison scratch;
    check_equal_start_and_data(outcomes_, scratch);
    return true;
  }

  void report(const PlannedRun& planned, const train::RunProgress& inner) {
    if (!options_.progress) return;
    const double step_s = inner.steps > inner.step ? inner.eta_s / static_cast<double>(inner.steps - inner.step) : 0;
    const double this_run = inner.steps > inner.step ? step_s * static_cast<double>(inner.steps) : inner.eta_s;
    const double mean = outcomes_.empty() ? this_run : seconds_ / static_cast<double>(outcomes_.size());
    options_.progress(
        {index_, total_, name_of(plan_, planned), inner, inner.eta_s + mean * static_cast<double>(total_ - index_)});
  }

  void note(const std::string& text) const {
    if (options_.note) options_.note(text);
  }

  const Plan& plan_;
  const train::Dataset& dataset_;
  const CompareOptions& options_;
  std::vector<RunOutcome> outcomes_;
  size_t index_ = 0, total_ = plan_.total_runs();
  double seconds_ = 0;
};

// Continues the prompt with the model of a contender's best run, always with the same seed.
report::Sample make_sample(const Plan& plan, const Result& result, size_t contender, const text::Tokenizer& tokenizer) {
  const train::RunFolder run{plan.run(contender, result.sweep->best.lr, plan.seeds().front()).folder};
  const auto checkpoint = io::latest_checkpoint(run.checkpoints()).path;
  if (!checkpoint)
    throw std::runtime_error(fmt::format("{}: expected a checkpoint that verifies, got none", run.path.string()));
  const auto model = model::load_model(*checkpoint, train::device_of(plan.config().string("run.device")));
  const auto prompt = plan.config().string("compare.prompt");
  const auto ids = tokenizer.encode(prompt);
  model::GenerateOptions options;
  options.temperature = 0.8;  // greedy decoding of a barely trained model ends in a loop
  options.top_p = 0.95;
  options.tokens = std::min(plan.config().integer("compare.sample_tokens"),
                            model.config().context - static_cast<int64_t>(ids.size()));
  if (ids.empty() || options.tokens < 1) {
    throw Error(fmt::format("{}: expected text shorter than the model's context of {} tokens, got {} tokens",
                            plan.config().where("compare.prompt"), model.config().context, ids.size()));
  }
  return {
      result.id, prompt,
      tokenizer.decode(model::generate(model, ids, options, tokenizer.end_of_text()), /*skip_special_tokens=*/true)};
}

}  // namespace

std::optional<train::TrainedData> check_folder(const Plan& plan) {
  train::RunFolder{plan.folder()}.check_can_compare();
  std::optional<train::TrainedData> trained;
  for (const auto& planned : plan.possible_runs()) {
    const train::RunFolder folder{planned.folder};
    const auto stored = folder.config();
    if (!stored) continue;
    train::check_resume(planned.config);
    if (planned.config.integer("train.steps") != stored->integer("train.steps")) {
      throw Error(fmt::format("{}: expected {}, the steps of the existing runs, got {}; choose another folder (--out)",
                              planned.config.where("train.steps"), stored->integer("train.steps"),
                              planned.config.integer("train.steps")));
    }
    if (!trained) trained = folder.trained_data();
  }
  return trained;
}

std::vector<PlannedRun> runs_left(const Plan& plan) {
  const auto sweep = plan.sweep();
  auto left = sweep;
  std::erase_if(left, has_ended);
  if (!left.empty()) {
    for (size_t contender = 0; contender < plan.contenders().size(); ++contender) {
      for (size_t i = 1; i < plan.seeds().size(); ++i)
        left.push_back(plan.run(contender, plan.contenders()[contender].rates.front(), plan.seeds()[i]));
    }
    return left;
  }
  std::vector<RunOutcome> outcomes;
  for (const auto& planned : sweep) outcomes.push_back(outcome_of(planned, train::RunFolder{planned.folder}.summary()));
  left = at_best_rates(plan, outcomes);
  std::erase_if(left, has_ended);
  return left;
}

CompareResult compare(const Plan& plan, const train::Dataset& dataset, const CompareOptions& options) {
  check_folder(plan);
  const train::RunFolder folder{plan.folder()};
  const io::FolderLock lock(folder.path);
  if (!fs::exists(folder.config_file())) io::write_file_atomically(folder.config_file(), plan.config().to_toml());
  CompareResult result;
  Runner runner(plan, dataset, options);
  result.interrupted = !runner.run_all();
  if (result.interrupted) return result;
  result.runs = std::move(runner).outcomes();
  result.comparison = analyze(plan, result.runs);
  const auto& results = result.comparison.results;
  for (size_t i = 0; i < results.size() && !plan.config().string("compare.prompt").empty(); ++i) {
    if (results[i].sweep) result.samples.push_back(make_sample(plan, results[i], i, dataset.tokenizer));
  }
  io::write_json(summary_json(plan, result.comparison, result.runs), folder.summary_file());
  io::write_file_atomically(folder.runs_table(), runs_csv(plan, result.runs));
  io::write_file_atomically(folder.config_file(), plan.config().to_toml());
  report::write(page_document(plan, result.comparison, result.runs, result.samples, options.command),
                folder.page_file());
  return result;
}

}  // namespace prism::compare
