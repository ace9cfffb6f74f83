#include "prism/reproduce/result.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "prism/io/error.h"
#include "prism/io/hash.h"
#include "prism/io/json_lines.h"
#include "prism/report/thin.h"
#include "prism/reproduce/gain.h"
#include "prism/reproduce/stability.h"
#include "prism/train/config.h"
#include "prism/train/run_page.h"

namespace prism::reproduce {
namespace {

using nlohmann::json;

constexpr size_t kCurvePoints = 100, kNormPoints = 40;

// These change what a run records, where and how fast, not what it learns.
bool is_free(std::string_view key) {
  for (const std::string_view prefix :
       {"data.", "checkpoint.", "metrics.", "run.", "compare.", "experiment.", "train.graph", "train.deterministic",
        "train.eval_every", "model.recompute", "model.preset", "optimizer.aux_ratio"}) {
    if (key.starts_with(prefix)) return true;
  }
  return false;
}

// Keys that were added after the first results were kept, with the value under which a run is as it was before. A key
// at this value is left out of the settings, so that older results stay found. Add a line with every new key.
const std::map<std::string, json, std::less<>>& added_later() {
  static const std::map<std::string, json, std::less<>> keys = {{"train.patience", 0}};
  return keys;
}

json stability_of(const std::vector<double>& losses, double entropy, bool stopped) {
  json object = {{"diverged", nullptr}, {"spikes", json::array()}};
  if (const auto diverged = divergence(losses, entropy, stopped))
    object["diverged"] = {{"step", diverged->step}, {"reason", diverged->reason}};
  for (const auto& spike : spikes(losses)) {
    object["spikes"].push_back({{"step", spike.step},
                                {"height", std::isfinite(spike.height) ? json(spike.height) : json()},
                                {"recovery", spike.recovery ? json(*spike.recovery) : json()}});
  }
  return object;
}

std::vector<double> losses_of(const std::vector<json>& metrics) {
  std::vector<double> losses;
  for (const auto& line : metrics) {
    const auto& loss = line.at("loss");
    losses.push_back(loss.is_number() ? loss.get<double>() : std::numeric_limits<double>::infinity());
  }
  return losses;
}

// √Σ‖X‖² over all types of hidden matrices, for each X that every type has.
json joint_norms(const json& types) {
  std::map<std::string, double> squares;
  std::map<std::string, size_t> counts;
  for (const auto& [type, norms] : types.items()) {
    for (const auto& [name, value] : norms.items()) {
      if (!value.is_number()) continue;
      squares[name] += value.get<double>() * value.get<double>();
      ++counts[name];
    }
  }
  json joint = json::object();
  for (const auto& [name, sum] : squares) {
    if (counts[name] == types.size()) joint[name] = rounded(std::sqrt(sum));
  }
  return joint;
}

// Lists over at most kNormPoints steps, evenly spread, the last step among them.
json norms_of(const std::vector<json>& metrics) {
  json norms = json::object();
  const size_t stride = std::max<size_t>(1, metrics.size() / kNormPoints);
  for (size_t i = (metrics.size() + stride - 1) % stride; i < metrics.size(); i += stride) {
    if (!metrics[i].contains("norms")) continue;
    norms["step"].push_back(metrics[i].at("step"));
    const auto joint = joint_norms(metrics[i].at("norms"));
    for (const auto& [name, value] : joint.items()) norms[name].push_back(value);
  }
  return norms;
}

}  // namespace

double rounded(double value) { return std::stod(fmt::format("{:.5g}", value)); }

std::string RunKey::settings_hash() const {
  return io::hash_bytes(json{{"numerics", kNumerics}, {"settings", settings}}.dump());
}

std::string RunKey::hash() const { return io::hash_bytes(fmt::format("{}\n{}\n{}", settings_hash(), data, device)); }

json key_settings(const io::Config& config) {
  auto resolved = config;
  constexpr int64_t kAnyVocabulary = 1024;  // the data's recipe stands for it
  train::resolve(resolved, kAnyVocabulary);
  json settings = json::object();
  for (const auto& key : resolved.table().keys()) {
    const auto& name = key.name();
    if (is_free(name) || !resolved.has(name)) continue;
    const auto& value = resolved.value(name);
    if (value == "auto" && key.fallback() == "auto") continue;  // not an option of this optimizer
    if (const auto added = added_later().find(name); added != added_later().end() && added->second == value) continue;
    settings[name] = value;
  }
  // One rate, whether it was given itself or as a multiple of the other.
  settings["optimizer.aux_lr"] = train::optimizer_options(resolved).rest->lr();
  return settings;
}

std::string StoredRun::file_name() const {
  return fmt::format("{}-lr{}-seed{}-{}.json", key.settings.at("optimizer.name").get<std::string>(),
                     key.settings.at("optimizer.lr").get<double>(), key.settings.at("train.seed").get<int64_t>(),
                     key.hash().substr(0, 12));
}

StoredRun store(const RunKey& key, const std::filesystem::path& run, double entropy, double wall_seconds) {
  const auto metrics = io::read_json_lines(run / "metrics.jsonl");
  StoredRun stored{.key = key,
                   .summary = train::read_summary(run),
                   .stability = {},
                   .curves = train::page_run(run, train::read_summary(run)),
                   .norms = norms_of(metrics)};
  const bool stopped = stored.summary.at("status") != "finished";
  stored.stability = stability_of(losses_of(metrics), entropy, stopped);
  stored.summary.erase("routing");
  for (auto& source : stored.summary.at("data").at("sources")) source.erase("path");
  stored.summary["data"]["unigram_entropy"] = entropy;
  stored.summary["wall_seconds"] = wall_seconds;
  report::thin_run(stored.curves, kCurvePoints);
  const auto spectra = run / "spectra.jsonl";
  if (std::filesystem::exists(spectra)) stored.spectra = spectra_summary(io::read_json_lines(spectra), key.settings);
  if (stored.spectra.is_null()) {
    stored.curves.erase("spectra");
  } else {
    stored.curves["spectra"] = few_spectra(stored.curves.at("spectra"));
  }
  stored.curves.erase("folder");
  return stored;
}

std::string to_text(const StoredRun& run) {
  std::string text = "{\n";
  const auto line = [&](const char* name, const json& value, const char* end = ",\n") {
    text += fmt::format("\"{}\": {}{}", name, value.dump(), end);
  };
  line("key", run.key.hash());
  line("numerics", kNumerics);
  line("settings", run.key.settings);
  line("data", run.key.data);
  line("device", run.key.device);
  line("summary", run.summary);
  line("stability", run.stability);
  line("norms", run.norms);
  if (!run.spectra.is_null()) line("spectra", run.spectra);
  line("curves", run.curves, "\n}\n");
  return text;
}

StoredRun stored_run_from_json(const json& object, const std::string& where) {
  try {
    StoredRun run{.key = {.settings = object.at("settings"), .data = object.at("data"), .device = object.at("device")},
                  .summary = object.at("summary"),
                  .stability = object.at("stability"),
                  .curves = object.at("curves"),
                  .norms = object.at("norms"),
                  .spectra = object.value("spectra", json())};
    if (object.at("numerics") == kNumerics && object.at("key") != run.key.hash())
      throw Error(fmt::format("{}: expected the key {} of its settings, got {}; the file was changed", where,
                              run.key.hash(), object.at("key").dump()));
    return run;
  } catch (const json::exception& error) {
    throw Error(fmt::format("{}: not a result of prism reproduce: {}", where, error.what()));
  }
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
