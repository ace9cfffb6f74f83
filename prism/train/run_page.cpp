#include "prism/train/run_page.h"

#include <fmt/format.h>

#include <cmath>

#include "prism/io/spelling.h"
#include "prism/optim/registry.h"
#include "prism/report/thin.h"
#include "prism/train/run_fields.h"

namespace prism::train {
namespace {

using io::grouped;
using report::Tone;

void add_point(report::LossCurve& curve, const StepRecord& record, double loss) {
  curve.step.push_back(record.step);
  curve.tokens.push_back(record.tokens);
  curve.seconds.push_back(record.seconds);
  curve.loss.push_back(loss);
}

std::optional<double> constant_gamma(const io::Config& config) {
  const auto name = config.string("optimizer.name");
  if (name == "muon") return 0;
  if (name != "prism" || !config.is("optimizer.gamma_schedule", "constant") ||
      config.integer("optimizer.gamma_warmup") > 0)
    return {};
  return config.real("optimizer.gamma");
}

std::string loss_text(double loss) { return std::isfinite(loss) ? fmt::format("{:.4f}", loss) : "none"; }

std::vector<report::Sentence> page_summary(const RunSummary& summary, const std::string& label) {
  std::vector<report::Sentence> sentences = {
      {fmt::format("**{}** reached a held-out loss of **{}** after {}.", label, loss_text(summary.val_loss),
                   io::counted(summary.step, "step")),
       Tone::Headline},
      {fmt::format("{} parameters, {} of them in hidden matrices, trained on {} tokens.", grouped(summary.parameters),
                   grouped(summary.matrix_parameters), grouped(summary.tokens))}};
  if (summary.stopped_early)
    sentences.push_back({fmt::format("It stopped early: the held-out loss no longer fell below its best, {}.",
                                     loss_text(summary.best_val_loss))});
  if (summary.status != RunStatus::Finished)
    sentences.push_back({fmt::format("This run is {}.", report::word(summary.status)), Tone::Caution});
  if (!summary.diagnosis.empty()) sentences.push_back({summary.diagnosis, Tone::Caution});
  if (summary.skipped > 0)
    sentences.push_back(
        {fmt::format("{} not finite and left the weights unchanged.",
                     summary.skipped == 1 ? "1 step was" : io::counted(summary.skipped, "step") + " were"),
         Tone::Caution});
  return sentences;
}

// Lists the fields of a struct as rows of names and values.
struct FactLister {
  report::Facts facts;

  template <class T>
  FactLister& operator()(std::string_view name, const T& value) {
    if (value != T()) facts.rows.emplace_back(name.substr(0, name.find('?')), fmt::format("{}", value));
    return *this;
  }
};

}  // namespace

std::string optimizer_label(const std::string& name) {
  for (const auto& optimizer : optimizers()) {
    if (optimizer.name == name) return optimizer.label;
  }
  return name;
}

report::PageRun page_run(const RunFolder& folder, const RunData& data) {
  const auto config = *folder.config();
  const auto& summary = data.summary;
  report::PageRun run;
  run.lr = config.real("optimizer.lr");
  run.seed = config.integer("train.seed");
  run.status = summary.status;
  if (summary.status != RunStatus::Finished) run.stopped_step = summary.step;
  run.loss = summary.loss;
  run.val_loss = summary.val_loss;
  run.seconds = summary.timing.seconds;
  run.folder = folder.path.filename().string();
  for (const auto& record : data.metrics) {
    add_point(run.train, record, record.loss);
    if (record.val_loss) add_point(run.val, record, *record.val_loss);
    if (!record.weight_norm) continue;
    run.norms.step.push_back(record.step);
    run.norms.weight.push_back(*record.weight_norm);
  }
  const auto gamma = constant_gamma(config);
  for (const report::Spectrum& line : data.spectra) run.spectra.emplace_back(line).gamma = gamma;
  report::thin_run(run);
  return run;
}

report::PageRouting page_routing(const RunSummary& summary, const std::string& optimizer_id) {
  report::PageRouting routing{optimizer_id};
  for (const auto& line : summary.routing)
    routing.rows.push_back({line.name, line.shape, optimizer_label(line.optimizer), line.rule});
  return routing;
}

report::PageMemory page_memory(const RunSummary& summary) {
  const auto weights = summary.parameters * 4;
  return {weights, weights, summary.optimizer_state_bytes, summary.memory.peak_bytes,
          summary.memory.of.empty() ? "host" : summary.memory.of};
}

std::vector<report::Facts> page_facts(const RunSummary& summary) {
  FactLister lister{{"Machine"}};
  auto machine = summary.machine;
  fields(lister, machine);
  const auto& data = summary.data;
  report::Facts corpus{"Corpus"};
  for (const auto& source : data.sources) {
    corpus.rows.emplace_back(
        "text", fmt::format("{}, {}", io::counted(source.files, "file"), io::counted(source.bytes, "byte")));
    corpus.rows.emplace_back("hash of the text", source.hash);
  }
  corpus.rows.emplace_back("training tokens", grouped(data.train_tokens));
  corpus.rows.emplace_back("held-out tokens", grouped(data.val_tokens));
  corpus.rows.emplace_back("vocabulary", grouped(data.vocab));
  corpus.rows.emplace_back("tokenizer", data.tokenizer);
  return {lister.facts, corpus};
}

report::PageDocument page_document(const RunFolder& folder, const RunData& data) {
  const auto config = *folder.config();
  const auto name = config.string("optimizer.name"), label = optimizer_label(name);
  const auto& summary = data.summary;
  const auto& timing = summary.timing;
  report::PageDocument document;
  document.title = folder.path.filename().string();
  document.summary = page_summary(summary, label);
  document.highlights = {{loss_text(summary.val_loss), "held-out loss"},
                         {loss_text(summary.loss), "training loss"},
                         {grouped(static_cast<int64_t>(timing.tokens_per_s)), "tokens per second"},
                         {fmt::format("{:.1f} %", 100 * timing.optimizer_share), "of a step is the optimizer"}};
  auto& optimizer = document.optimizers.emplace_back(report::PageOptimizer{.id = name, .label = label});
  optimizer.step_ms = timing.step_ms;
  optimizer.optimizer_ms = timing.optimizer_ms;
  optimizer.memory = page_memory(summary);
  auto& run = document.runs.emplace_back(page_run(folder, data));
  run.optimizer = name;
  run.best = true;
  document.routing = {page_routing(summary, name)};
  document.facts = page_facts(summary);
  document.config = config.to_toml();
  document.command = fmt::format("prism train --config {} --out NEW_FOLDER", folder.config_file().string());
  return document;
}

}  // namespace prism::train
