#include "prism/train/run_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "prism/io/error.h"
#include "prism/io/json_fields.h"
#include "prism/io/json_lines.h"
#include "prism/train/config.h"
#include "prism/train/run_fields.h"

namespace prism::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Returns true if a key may differ between a run and its continuation.
bool may_change(std::string_view key) {
  for (const std::string_view prefix : {"checkpoint.", "metrics.", "run.", "compare.", "train.eval_", "train.max_skips",
                                        "train.patience", "train.graph", "train.steps", "data.cache"}) {
    if (key.starts_with(prefix)) return true;
  }
  return false;
}

bool is_comparison(const io::Config& stored) { return !stored.strings("compare.optimizers").empty(); }

}  // namespace

std::optional<io::Config> RunFolder::config() const {
  const auto file = config_file();
  if (!fs::exists(file)) return std::nullopt;
  auto config = make_config();
  config.read_file(file);
  // The file lists every key that existed when it was written. Runs without this key began with smaller projections.
  if (!config.is_given("model.init_scale")) {
    const bool random = config.string("model.init").empty();
    config.assign("model.init_scale", random ? "depth" : "qwen2", file.string());
    if (!random) config.assign("model.preset", "auto", file.string());
  }
  // Older files of PRISM runs write "auto" for the shorter side. In files of other optimizers the covariance is "auto"
  // too.
  const bool has_sides = !config.is("optimizer.covariance", "auto");
  if (has_sides && config.is("optimizer.side", "auto")) config.assign("optimizer.side", "short", file.string());
  return config;
}

void RunFolder::check_can_train(bool resume) const {
  const auto stored = config();
  if (!stored) return;
  if (is_comparison(*stored))
    throw Error(fmt::format("{}: holds a comparison; choose another folder (--out) to train in", path.string()));
  if (!resume) {
    throw Error(
        fmt::format("{}: already holds a run; continue it (--resume) or choose another folder (--out)", path.string()));
  }
}

void RunFolder::check_can_compare() const {
  const auto stored = config();
  if (!stored || is_comparison(*stored)) return;
  throw Error(fmt::format("{}: holds a training run; choose another folder (--out) to compare in", path.string()));
}

void keep_old_defaults(io::Config& config, const io::Config& stored) {
  if (config.string("optimizer.name") != stored.string("optimizer.name")) return;  // check_same_run reports it
  for (const char* key : {"model.init_scale", "optimizer.lr", "optimizer.gamma", "optimizer.side",
                          "optimizer.covariance", "optimizer.coefficients", "optimizer.betas", "schedule.warmup"}) {
    if (!config.is_given(key)) config.assign(key, stored.value(key), stored.where(key));
  }
}

void check_resume(const io::Config& config) {
  const fs::path folder = config.string("run.out");
  const auto stored = RunFolder{folder}.config();
  if (!stored) return;
  auto wanted = config;
  const auto vocab = (config.is_given("data.vocab") ? config : *stored).integer("data.vocab");
  resolve(wanted, vocab);
  check_same_run(wanted, *stored, folder);
}

void check_same_run(const io::Config& wanted, const io::Config& written, const fs::path& folder) {
  // Give options that did not exist when it was written their defaults.
  auto stored = written;
  resolve(stored, stored.integer("data.vocab"));
  std::vector<std::string> differences;
  for (const auto& key : wanted.table().keys()) {
    const auto& name = key.name();
    if (may_change(name) || (!wanted.has(name) && !stored.has(name))) continue;
    const auto ours = wanted.has(name) ? wanted.value(name) : json(),
               theirs = stored.has(name) ? stored.value(name) : json();
    if (ours != theirs) differences.push_back(fmt::format("{} was {}, got {}", name, theirs.dump(), ours.dump()));
  }
  if (differences.empty()) return;
  throw Error(fmt::format("{}: cannot resume with other settings: {}; use the old values or another run.out",
                          folder.string(), fmt::join(differences, "; ")));
}

text::Tokenizer RunFolder::tokenizer() const {
  auto tokenizer = text::Tokenizer::load(tokenizer_file());
  const auto stored = config();
  return stored ? tokenizer.with_end_of_text(stored->string("data.eos")) : tokenizer;
}

std::optional<RunRecord> RunFolder::record() const {
  if (!fs::exists(record_file())) return std::nullopt;
  return io::read_json<RunRecord>(record_file());
}

void RunFolder::write(const RunRecord& record) const { io::write_json(record, record_file()); }

int64_t RunFolder::saved_step() const {
  const auto newest = record();
  if (!newest || !newest->checkpoint) return 0;
  const auto& name = *newest->checkpoint;  // "step-00001000"
  int64_t step = 0;
  std::from_chars(name.data() + name.find_last_not_of("0123456789") + 1, name.data() + name.size(), step);
  return step;
}

std::optional<TrainedData> RunFolder::trained_data() const {
  const auto newest = record();
  if (!newest || !newest->checkpoint) return std::nullopt;
  return TrainedData{newest->data, tokenizer_file()};
}

RunSummary RunFolder::summary() const { return io::read_json<RunSummary>(summary_file()); }

bool RunFolder::has_ended() const { return fs::exists(summary_file()) && summary().status != RunStatus::Interrupted; }

std::vector<StepRecord> RunFolder::metrics() const { return io::read_json_lines<StepRecord>(metrics_file()); }

std::vector<SpectraLine> RunFolder::spectra() const {
  if (!fs::exists(spectra_file())) return {};
  return io::read_json_lines<SpectraLine>(spectra_file());
}

}  // namespace prism::train
