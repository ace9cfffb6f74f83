#include "prism/train/run_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "prism/io/atomic_file.h"
#include "prism/io/error.h"
#include "prism/io/file.h"
#include "prism/io/json.h"
#include "prism/train/config.h"

namespace prism::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kRecordName = "run.json";

// What may differ between a run and its continuation.
bool may_change(std::string_view key) {
  for (const std::string_view free : {"checkpoint.", "metrics.", "run.", "compare.", "train.eval_", "train.max_skips",
                                      "train.patience", "train.graph", "train.steps", "data.cache"}) {
    if (key.starts_with(free)) return true;
  }
  return false;
}

bool is_comparison(const io::Config& stored) { return !stored.strings("compare.optimizers").empty(); }

}  // namespace

std::optional<io::Config> stored_config(const fs::path& folder) {
  if (!fs::exists(folder / "config.toml")) return std::nullopt;
  auto config = make_config();
  const auto file = folder / "config.toml";
  config.read_file(file);
  // The file lists every key of the program that wrote it: one without this key began with smaller projections.
  if (!config.is_given("model.init_scale")) {
    const bool random = config.string("model.init").empty();
    config.assign("model.init_scale", random ? "depth" : "qwen2", file.string());
    if (!random) config.assign("model.preset", "auto", file.string());
  }
  return config;
}

void expect_place_for_run(const fs::path& folder, bool resume) {
  const auto stored = stored_config(folder);
  if (!stored) return;
  if (is_comparison(*stored))
    throw Error(fmt::format("{}: holds a comparison; choose another folder (--out) to train in", folder.string()));
  if (!resume) {
    throw Error(fmt::format("{}: holds a run already; go on with it (--resume) or choose another folder (--out)",
                            folder.string()));
  }
}

void expect_place_for_comparison(const fs::path& folder) {
  const auto stored = stored_config(folder);
  if (!stored || is_comparison(*stored)) return;
  throw Error(fmt::format("{}: holds a training run; choose another folder (--out) to compare in", folder.string()));
}

void keep_old_defaults(io::Config& config, const io::Config& stored) {
  if (config.string("optimizer.name") != stored.string("optimizer.name")) return;  // another run
  for (const char* key : {"model.init_scale", "optimizer.betas", "schedule.warmup"}) {
    if (!config.is_given(key)) config.assign(key, stored.value(key), stored.where(key));
  }
}

void check_resume(const io::Config& config) {
  const fs::path folder = config.string("run.out");
  const auto stored = stored_config(folder);
  if (!stored) return;
  auto wanted = config;
  const auto vocab = (config.is_given("data.vocab") ? config : *stored).integer("data.vocab");
  resolve(wanted, vocab);
  refuse_other_run(wanted, *stored, folder);
}

void refuse_other_run(const io::Config& wanted, const io::Config& written, const fs::path& folder) {
  // Options that did not exist when it was written have their defaults.
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
  throw Error(fmt::format("{}: cannot resume with other settings: {}; give the old ones, or another run.out",
                          folder.string(), fmt::join(differences, "; ")));
}

text::Tokenizer run_tokenizer(const fs::path& folder) {
  auto tokenizer = text::Tokenizer::load(folder / "tokenizer.json");
  const auto config = stored_config(folder);
  return config ? tokenizer.with_end_of_text(config->string("data.eos")) : tokenizer;
}

std::optional<RunRecord> read_record(const fs::path& folder) {
  const auto file = folder / kRecordName;
  if (!fs::exists(file)) return std::nullopt;
  const auto object = io::parse_json(io::read_file(file), file.string());
  try {
    RunRecord record{object.at("data"), std::nullopt};
    if (const auto& name = object.at("checkpoint"); !name.is_null()) record.checkpoint = name.get<std::string>();
    return record;
  } catch (const json::exception& error) {
    throw Error(fmt::format("{}: not the record of a run: {}", file.string(), error.what()));
  }
}

void write_record(const fs::path& folder, const RunRecord& record) {
  const json checkpoint = record.checkpoint ? json(*record.checkpoint) : json();
  const json object = {{"data", record.data}, {"checkpoint", checkpoint}};
  io::write_file_atomically(folder / kRecordName, object.dump(2) + "\n");
}

int64_t saved_step(const fs::path& folder) {
  const auto record = read_record(folder);
  if (!record || !record->checkpoint) return 0;
  const auto& name = *record->checkpoint;  // "step-00001000"
  int64_t step = 0;
  std::from_chars(name.data() + std::min(name.find_last_not_of("0123456789") + 1, name.size()),
                  name.data() + name.size(), step);
  return step;
}

std::optional<TrainedData> trained_data(const fs::path& folder) {
  const auto record = read_record(folder);
  if (!record || !record->checkpoint) return std::nullopt;
  return TrainedData{record->data, folder / "tokenizer.json"};
}

}  // namespace prism::train
