#include "prism/train/run_page.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "prism/io/file.h"
#include "prism/io/json.h"
#include "prism/io/json_lines.h"
#include "prism/io/spelling.h"
#include "prism/optim/registry.h"
#include "prism/report/page.h"
#include "prism/report/thin.h"
#include "prism/train/run_folder.h"

namespace prism::train {
namespace {

namespace fs = std::filesystem;
using io::grouped;
using nlohmann::json;

void add_point(json& curve, const json& line, const char* value) {
  for (const char* key : {"step", "tokens", "seconds"}) curve[key].push_back(line.at(key));
  curve["loss"].push_back(line.at(value));
}

std::optional<double> constant_gamma(const io::Config& config) {
  const auto name = config.string("optimizer.name");
  if (name == "muon") return 0;
  if (name != "prism" || !config.is("optimizer.gamma_schedule", "constant") ||
      config.integer("optimizer.gamma_warmup") > 0)
    return {};
  return config.real("optimizer.gamma");
}

json page_spectra(const fs::path& folder, const io::Config& config) {
  json records = json::array();
  if (!fs::exists(folder / "spectra.jsonl")) return records;
  const auto gamma = constant_gamma(config);
  for (const auto& line : io::read_json_lines(folder / "spectra.jsonl")) {
    json record = {{"step", line.at("step")}, {"matrix", line.at("name")}};
    for (const char* key : {"snr", "gain", "theory", "singular_values", "weight_norm", "update_norm"})
      record[key] = line.at(key);
    if (gamma) record["gamma"] = *gamma;
    records.push_back(std::move(record));
  }
  return records;
}

std::string loss_text(const json& loss) {
  return loss.is_number() ? fmt::format("{:.4f}", loss.get<double>()) : "none";
}

std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

json page_summary(const json& summary, const std::string& label) {
  const auto status = summary.at("status").get<std::string>();
  json sentences = json::array();
  sentences.push_back({{"tone", "headline"},
                       {"text", fmt::format("**{}** reached a held-out loss of **{}** after {} steps.", label,
                                            loss_text(summary.at("val_loss")), grouped(summary.at("step")))}});
  sentences.push_back({{"text", fmt::format("{} parameters, {} of them in hidden matrices, trained on {} tokens.",
                                            grouped(summary.at("parameters")), grouped(summary.at("matrix_parameters")),
                                            grouped(summary.at("tokens")))}});
  if (summary.value("stopped_early", false)) {
    sentences.push_back({{"text", fmt::format("It stopped early: the best held-out loss, {}, was not reached again.",
                                              loss_text(summary.at("best_val_loss")))}});
  }
  if (status != "finished")
    sentences.push_back({{"tone", "caution"}, {"text", fmt::format("This run is {}.", status)}});
  if (summary.contains("diagnosis")) sentences.push_back({{"tone", "caution"}, {"text", summary.at("diagnosis")}});
  if (summary.at("skipped") > 0) {
    sentences.push_back(
        {{"tone", "caution"},
         {"text", fmt::format("{} not finite and changed nothing.",
                              summary.at("skipped") == 1 ? "1 step was"
                                                         : io::counted(summary.at("skipped"), "step") + " were")}});
  }
  return sentences;
}

}  // namespace

json read_summary(const fs::path& folder) {
  const auto file = folder / "summary.json";
  return io::parse_json(io::read_file(file), file.string());
}

bool has_ended(const fs::path& folder) {
  return fs::exists(folder / "summary.json") && read_summary(folder).at("status") != "interrupted";
}

std::string optimizer_label(const std::string& name) {
  for (const auto& optimizer : optimizers()) {
    if (optimizer.name == name) return optimizer.label;
  }
  return name;
}

namespace {

json run_entry(const fs::path& folder, const json& summary, const io::Config& config, const std::vector<json>& metrics,
               json spectra) {
  json train = json::object(), val = json::object(), norms = json::object();
  for (const auto& line : metrics) {
    add_point(train, line, "loss");
    if (line.contains("val_loss")) add_point(val, line, "val_loss");
    if (line.contains("weight_norm")) {
      norms["step"].push_back(line.at("step"));
      norms["weight"].push_back(line.at("weight_norm"));
    }
  }
  json run = {{"lr", config.real("optimizer.lr")},    {"seed", config.integer("train.seed")},
              {"status", summary.at("status")},       {"loss", summary.at("loss")},
              {"val_loss", summary.at("val_loss")},   {"seconds", summary.at("timing").at("seconds")},
              {"folder", folder.filename().string()}, {"spectra", std::move(spectra)}};
  if (summary.at("status") != "finished") run["stopped_step"] = summary.at("step");
  if (!train.empty()) run["train"] = std::move(train);
  if (!val.empty()) run["val"] = std::move(val);
  if (!norms.empty()) run["norms"] = std::move(norms);
  report::thin_run(run);
  return run;
}

json whole_entry(const fs::path& folder, const json& summary, const io::Config& config) {
  return run_entry(folder, summary, config, io::read_json_lines(folder / "metrics.jsonl"),
                   page_spectra(folder, config));
}

}  // namespace

json page_run(const fs::path& folder, const json& summary) {
  return whole_entry(folder, summary, *stored_config(folder));
}

json page_routing(const json& summary, const std::string& optimizer_id) {
  json rows = json::array();
  for (const auto& line : summary.at("routing")) {
    rows.push_back({{"parameter", line.at("name")},
                    {"shape", line.at("shape")},
                    {"to", optimizer_label(line.at("optimizer"))},
                    {"rule", line.at("rule")}});
  }
  return {{"optimizer", optimizer_id}, {"rows", std::move(rows)}};
}

json page_memory(const json& summary) {
  const auto weights = summary.at("parameters").get<int64_t>() * 4;
  return {{"weights", weights},
          {"gradients", weights},
          {"optimizer", summary.at("optimizer_state_bytes")},
          {"peak", summary.at("memory").at("peak_bytes")},
          {"of", summary.at("memory").value("of", "host")}};  // of older runs the host's
}

json page_facts(const json& summary) {
  json machine = json::array(), corpus = json::array();
  for (const auto& [key, value] : summary.at("machine").items()) machine.push_back({key, text_of(value)});
  const auto& data = summary.at("data");
  for (const auto& source : data.at("sources")) {
    corpus.push_back({"text", fmt::format("{}, {}", io::counted(source.at("files"), "file"),
                                          io::counted(source.at("bytes"), "byte"))});
    corpus.push_back({"hash of the text", source.at("hash")});
  }
  corpus.push_back({"training tokens", grouped(data.at("train_tokens"))});
  corpus.push_back({"held-out tokens", grouped(data.at("val_tokens"))});
  corpus.push_back({"vocabulary", grouped(data.at("vocab"))});
  corpus.push_back({"tokenizer", data.at("tokenizer")});
  return {{{"title", "Machine"}, {"rows", machine}}, {{"title", "Corpus"}, {"rows", corpus}}};
}

namespace {

json document_of(const fs::path& folder, const json& summary, const io::Config& config, json run) {
  const auto name = config.string("optimizer.name");
  const auto label = optimizer_label(name);
  const auto& timing = summary.at("timing");
  run["optimizer"] = name;
  run["best"] = true;
  return {{"kind", "train"},
          {"title", folder.filename().string()},
          {"summary", page_summary(summary, label)},
          {"highlights",
           {{{"value", loss_text(summary.at("val_loss"))}, {"label", "held-out loss"}},
            {{"value", loss_text(summary.at("loss"))}, {"label", "training loss"}},
            {{"value", grouped(static_cast<int64_t>(timing.at("tokens_per_s").get<double>()))},
             {"label", "tokens per second"}},
            {{"value", fmt::format("{:.1f} %", 100 * timing.at("optimizer_share").get<double>())},
             {"label", "of a step is the optimizer"}}}},
          {"optimizers",
           {{{"id", name},
             {"label", label},
             {"step_ms", timing.at("step_ms")},
             {"optimizer_ms", timing.at("optimizer_ms")},
             {"memory", page_memory(summary)}}}},
          {"runs", {run}},
          {"routing", {page_routing(summary, name)}},
          {"facts", page_facts(summary)},
          {"config", config.to_toml()},
          {"command", fmt::format("prism train --config {} --out NEW_FOLDER", (folder / "config.toml").string())}};
}

}  // namespace

json page_document(const fs::path& folder, const json& summary) {
  const auto config = *stored_config(folder);
  return document_of(folder, summary, config, whole_entry(folder, summary, config));
}

void write_live_page(const fs::path& folder, const json& summary, const std::vector<json>& metrics) {
  const auto config = *stored_config(folder);
  report::Page(document_of(folder, summary, config, run_entry(folder, summary, config, metrics, json::array())))
      .write(folder / "report.html");
}

void write_run_page(const fs::path& folder, const json& summary) {
  report::Page(page_document(folder, summary)).write(folder / "report.html");
}

}  // namespace prism::train
