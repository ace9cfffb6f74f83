#include "prism/reproduce/result.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <vector>

#include "prism/io/error.h"
#include "prism/io/hash.h"
#include "prism/io/json_fields.h"
#include "prism/report/page_fields.h"
#include "prism/report/thin.h"
#include "prism/train/config.h"
#include "prism/train/run_fields.h"
#include "prism/train/run_page.h"

namespace prism::reproduce {
namespace {

using nlohmann::json;

constexpr size_t kNormPoints = 40;
constexpr report::Limits kCurves = {.points = 100, .steps = 3, .matrices = 4, .directions = 24};

// Returns true for keys that do not change what a run learns, only what it records, where and how fast; and for keys
// whose effect shows in others.
bool is_left_out(std::string_view key) {
  for (const std::string_view prefix :
       {"data.", "checkpoint.", "metrics.", "run.", "compare.", "experiment.", "train.graph", "train.deterministic",
        "train.eval_every", "model.recompute", "model.preset", "optimizer.aux_ratio"}) {
    if (key.starts_with(prefix)) return true;
  }
  return false;
}

// Keys that were added after the first results were stored, with the value that leaves a run as it was before. A key
// with this value is left out of the settings, so that older results are still found. Add a line for every new key.
const std::map<std::string, json, std::less<>>& added_later() {
  static const std::map<std::string, json, std::less<>> keys = {{"train.patience", 0},
                                                                {"train.exact_reduction", false},
                                                                {"optimizer.side", "short"},
                                                                {"optimizer.fixed_norm", false},
                                                                {"optimizer.root_every", 1}};
  return keys;
}

std::vector<double> losses_of(const std::vector<train::StepRecord>& metrics) {
  std::vector<double> losses;
  for (const auto& record : metrics) losses.push_back(record.loss);
  return losses;
}

// Appends √Σ‖X‖² over all types of hidden matrices, or nothing if a type lacks X.
template <class Norm>
void add_joint(const std::map<std::string, train::MatrixNorms>& types, Norm train::MatrixNorms::*norm,
               std::vector<double>& list) {
  double squares = 0;
  for (const auto& [type, norms] : types) {
    const std::optional<double> value = norms.*norm;
    if (!value || !std::isfinite(*value)) return;
    squares += *value * *value;
  }
  list.push_back(rounded(std::sqrt(squares)));
}

// Returns the norms at about kNormPoints evenly spread steps, including the last.
NormLists norms_of(const std::vector<train::StepRecord>& metrics) {
  NormLists lists;
  const size_t stride = std::max<size_t>(1, metrics.size() / kNormPoints);
  for (size_t i = (metrics.size() + stride - 1) % stride; i < metrics.size(); i += stride) {
    const auto& types = metrics[i].norms;
    if (types.empty()) continue;
    lists.step.push_back(metrics[i].step);
    add_joint(types, &train::MatrixNorms::D, lists.D);
    add_joint(types, &train::MatrixNorms::G, lists.G);
    add_joint(types, &train::MatrixNorms::M, lists.M);
    add_joint(types, &train::MatrixNorms::O, lists.O);
    add_joint(types, &train::MatrixNorms::W, lists.W);
  }
  return lists;
}

}  // namespace

double rounded(double value) { return std::stod(fmt::format("{:.5g}", value)); }

std::string RunKey::settings_hash() const {
  return io::hash_bytes(json{{"numerics", kNumerics}, {"settings", settings}}.dump());
}

std::string RunKey::hash() const { return io::hash_bytes(fmt::format("{}\n{}\n{}", settings_hash(), data, device)); }

json key_settings(const io::Config& config) {
  auto resolved = config;
  constexpr int64_t kAnyVocabulary = 1024;  // any number will do: the recipe of the data covers it
  train::resolve(resolved, kAnyVocabulary);
  json settings = json::object();
  for (const auto& key : resolved.table().keys()) {
    const auto& name = key.name();
    if (is_left_out(name) || !resolved.has(name)) continue;
    const auto& value = resolved.value(name);
    if (value == "auto" && key.fallback() == "auto") continue;  // not an option of this optimizer
    // Only whitened matrices have roots; the results of others were stored without this key.
    if (name == "optimizer.root_every" && !resolved.is("optimizer.side", "whitened")) continue;
    if (const auto added = added_later().find(name); added != added_later().end() && added->second == value) continue;
    settings[name] = value;
  }
  // Store the rate itself, also if it was given as a multiple of the other.
  settings["optimizer.aux_lr"] = train::optimizer_options(resolved).rest->lr();
  return settings;
}

std::string StoredRun::file_name() const {
  return fmt::format("{}-lr{}-seed{}-{}.json", key.settings.at("optimizer.name").get<std::string>(),
                     key.settings.at("optimizer.lr").get<double>(), key.settings.at("train.seed").get<int64_t>(),
                     key.hash().substr(0, 12));
}

StoredRun read_run(const RunKey& key, const train::RunFolder& folder, double entropy, double wall_seconds) {
  const auto data = folder.data();
  StoredRun stored{
      .key = key, .summary = data.summary, .norms = norms_of(data.metrics), .curves = train::page_run(folder, data)};
  const auto losses = losses_of(data.metrics);
  const bool stopped = data.summary.status != train::RunStatus::Finished;
  stored.stability = {divergence(losses, entropy, stopped), spikes(losses)};
  stored.summary.routing.clear();
  for (auto& source : stored.summary.data.sources) source.path.clear();
  stored.summary.data.unigram_entropy = entropy;
  // Of a resumed run, `wall_seconds` covers only the last part.
  stored.summary.wall_seconds = std::max(wall_seconds, data.summary.timing.seconds);
  report::thin_run(stored.curves, kCurves);
  stored.spectra = spectra_summary(data.spectra, key.settings);
  for (auto& s : stored.curves.spectra) s = {s.step, s.matrix, s.gamma, s.snr, s.gain, s.theory};
  stored.curves.folder.clear();
  return stored;
}

void fields(auto& json, Divergence& d) { json("step", d.step)("reason", d.reason); }
void fields(auto& json, Spike& s) { json("step", s.step)("height", s.height)("recovery", s.recovery); }
void fields(auto& json, Stability& s) { json("diverged", s.diverged)("spikes", s.spikes); }
void fields(auto& json, NormLists& n) { json("step?", n.step)("D?", n.D)("G?", n.G)("M?", n.M)("O?", n.O)("W?", n.W); }

void fields(auto& json, SpectraSummary& s) {
  json("steps", s.steps)("snr", s.snr)("directions", s.directions)("r2_theory", s.r2_theory)("r2", s.r2);
}

void fields(auto& json, StoredRun& run) {
  auto hash = run.key.hash();  // written only; read_stored_run compares the one that is read
  json("key", hash)("numerics", run.numerics)("settings", run.key.settings)("data", run.key.data)("device",
                                                                                                  run.key.device);
  json("summary", run.summary)("stability", run.stability)("norms", run.norms)("spectra?", run.spectra)("curves",
                                                                                                        run.curves);
}

std::string to_text(const StoredRun& run) {
  const auto object = io::to_json(run);
  std::string text;
  for (const char* name :
       {"key", "numerics", "settings", "data", "device", "summary", "stability", "norms", "spectra", "curves"}) {
    if (!object.contains(name)) continue;
    text += fmt::format("{}\"{}\": {}", text.empty() ? "{\n" : ",\n", name, object.at(name).dump());
  }
  return text + "\n}\n";
}

StoredRun read_stored_run(const std::filesystem::path& file) {
  const auto where = file.string();
  const auto object = io::parse_json(io::read_file(file), where);
  auto run = io::from_json<StoredRun>(object, where + ": not a result of prism reproduce", io::UnknownKeys::Refused);
  if (run.is_current() && object.at("key") != run.key.hash())
    throw Error(fmt::format("{}: expected the key {} of its settings, got {}; the file was changed", where,
                            run.key.hash(), object.at("key").dump()));
  return run;
}

double unigram_entropy(const data::Shards& shards) {
  std::vector<int64_t> counts(static_cast<size_t>(shards.identity().vocab_size));
  std::vector<int64_t> block(1 << 20);
  for (int64_t first = 0; first < shards.tokens(); first += static_cast<int64_t>(block.size())) {
    const std::span<int64_t> part(block.data(), static_cast<size_t>(std::min<int64_t>(
                                                    static_cast<int64_t>(block.size()), shards.tokens() - first)));
    shards.read(first, part);
    for (const int64_t token : part) ++counts[static_cast<size_t>(token)];
  }
  double entropy = 0;
  for (const int64_t count : counts) {
    if (count == 0) continue;
    const double p = static_cast<double>(count) / static_cast<double>(shards.tokens());
    entropy -= p * std::log(p);
  }
  return entropy;
}

}  // namespace prism::reproduce
