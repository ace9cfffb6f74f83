#include "prism/cli/run_header.h"

#include <fmt/format.h>

#include "prism/cli/console.h"
#include "prism/io/config_toml.h"
#include "prism/io/folder_lock.h"
#include "prism/train/config.h"
#include "prism/train/estimate.h"
#include "prism/train/machine.h"
#include "prism/train/run_page.h"

namespace prism::cli {
namespace {

std::string text_of(const text::TrainerProgress& p) {
  if (p.phase == text::TrainerProgress::Phase::Counting) {
    return fmt::format("tokenizer: counting words  {} read  {} distinct", in_bytes(static_cast<double>(p.bytes)),
                       grouped(p.distinct_words));
  }
  return fmt::format("tokenizer: merging  {} of {} tokens", grouped(p.tokens), grouped(p.vocabulary));
}

constexpr double kDay = 86400;

std::string model_line(const io::Config& config, const train::Estimate& estimate) {
  const auto init = config.string("model.init");
  return fmt::format("model   {}, {} parameters, {} in hidden matrices",
                     init.empty() ? config.string("model.preset") : init, grouped(estimate.model.parameters()),
                     grouped(estimate.model.matrix_parameters()));
}

std::string device_line(const io::Config& config) {
  const auto machine = train::machine(train::device_of(config.string("run.device")));
  if (!machine.gpu.empty()) return fmt::format("device  {}, {}", machine.device, machine.gpu);
  return fmt::format("device  {}, {}, {}", machine.device, io::counted(machine.threads, "thread"), machine.cpu);
}

std::string rates_line(const io::Config& config) {
  const auto pair = train::optimizer_options(config);
  const auto schedule = train::schedule(config);
  auto text = fmt::format("rates   {} {:g}, AdamW {:g} for the rest, {}",
                          train::optimizer_label(config.string("optimizer.name")), pair.matrices->lr(), pair.rest->lr(),
                          config.string("schedule.kind"));
  if (schedule.warmup > 0) text += fmt::format(" after {} of warm-up", io::counted(schedule.warmup, "step"));
  return text;
}

std::string epochs_text(double epochs) {
  return epochs < 0.095 ? fmt::format("{:.1g}", epochs) : fmt::format("{:.{}f}", epochs, epochs < 9.95 ? 1 : 0);
}

std::string steps_line(const io::Config& config, const train::DatasetSize& data, const train::Estimate& estimate) {
  return fmt::format("steps   {} of {} × {} tokens: {} tokens, {}{} epochs", grouped(config.integer("train.steps")),
                     config.integer("train.batch"), grouped(config.integer("train.context")), grouped(estimate.tokens),
                     data.counted ? "" : "about ", epochs_text(estimate.epochs));
}

}  // namespace

std::string build_progress_text(const data::Progress& p) {
  const char* stage = p.stage == data::Stage::Hash ? "hashing" : p.stage == data::Stage::Scan ? "reading" : "encoding";
  const auto done = static_cast<double>(p.bytes), total = static_cast<double>(p.total_bytes);
  const auto documents = p.documents > 0 ? ("  " + io::counted(p.documents, "document")) : "";
  return fmt::format("data: {}  {}  {} of {}  {:.1f} MB/s  ETA {}{}", stage, in_percent(done, total), in_bytes(done),
                     in_bytes(total), p.mb_per_s, in_time(p.eta_s), documents);
}

std::string data_line(const train::DatasetSize& data) {
  return fmt::format("data    {}{} tokens per epoch, {} held out, vocabulary {}", data.counted ? "" : "about ",
                     grouped(data.epoch_tokens), grouped(data.val_tokens), grouped(data.vocab));
}

std::string skipped_files(const data::Skipped& skipped) {
  std::string text;
  for (const auto& [count, what] :
       {std::pair{skipped.hidden, "hidden"}, std::pair{skipped.filtered, "with other extensions"},
        std::pair{skipped.binary, "binary"}, std::pair{skipped.empty, "empty"},
        std::pair{skipped.special, "neither files nor folders"}}) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "skipped files: " : ", ", grouped(count), what);
  }
  return text;
}

std::vector<std::string> remarks(const data::BuildResult& result) {
  std::vector<std::string> lines;
  if (result.cut_bytes > 0) {
    lines.push_back(
        fmt::format("a single document: its last {} are held out", in_bytes(static_cast<double>(result.cut_bytes))));
  }
  if (result.empty_documents > 0) lines.push_back("skipped " + io::counted(result.empty_documents, "empty document"));
  if (result.null_rows > 0) lines.push_back("skipped " + io::counted(result.null_rows, "row") + " without text (null)");
  if (result.broken_characters > 0)
    lines.push_back("replaced invalid UTF-8 by U+FFFD in " + io::counted(result.broken_characters, "place"));
  if (const auto skipped = skipped_files(result.skipped); !skipped.empty()) lines.push_back(skipped);
  return lines;
}

train::Dataset open_dataset(const io::Config& config, ProgressLine& line,
                            const std::optional<train::TrainedData>& trained) {
  const std::filesystem::path out = config.string("run.out");
  { const io::FolderLock can_be_written(out); }  // fail now, not after hours of work
  train::DatasetProgress progress;
  progress.tokenizer = [&](const text::TrainerProgress& p) {
    if (line.due()) line.update(text_of(p));
  };
  progress.shards = [&](const data::Progress& p) {
    if (line.due()) line.update(build_progress_text(p));
  };
  progress.note = [&](const std::string& text) { line.note(text); };
  line.doing("data: reading the text");
  auto dataset = train::open_dataset(config, train::data_folder(config), progress, trained);
  const auto& identity = dataset.train.identity();
  for (const auto& source : identity.sources) {
    line.note(fmt::format("text    {}, {}, hash {}", io::counted(source.files, "file"),
                          in_bytes(static_cast<double>(source.bytes)), source.hash));
  }
  if (dataset.built) {
    for (const auto& remark : remarks(*dataset.built)) line.note("text    " + remark);
  }
  line.note(data_line(train::size_of(dataset)));
  line.clear();
  return dataset;
}

void announce(const io::Config& config, const train::DatasetSize& data, ProgressLine& line, int64_t done, size_t runs,
              int64_t processes) {
  line.doing("measuring a step");
  const auto estimate = train::estimate(config, data, done, processes);
  const double seconds = estimate.seconds * static_cast<double>(runs), memory = estimate.memory.total();
  line.note(model_line(config, estimate));
  line.note(device_line(config));
  if (runs == 1) line.note(rates_line(config));
  line.note(steps_line(config, data, estimate));
  line.note(fmt::format("needs   about {}{}, {} of memory, {} of disk", in_time(seconds),
                        runs == 1 ? "" : fmt::format(" for {}", io::counted(static_cast<int64_t>(runs), "run")),
                        in_bytes(memory), in_bytes(estimate.disk_bytes * static_cast<double>(runs))));
  if (seconds > kDay) {
    const bool cpu = train::device_of(config.string("run.device")).is_cpu();
    line.note(fmt::format(
        "warning: this will take about {} on this machine; use a smaller model.preset{} or fewer train.steps",
        in_time(seconds), cpu ? ", a GPU" : ""));
  }
  if (memory > estimate.total_memory) {
    line.note(
        fmt::format("warning: this needs about {} of memory, but there are {}; raise train.accumulate or set "
                    "model.recompute = true",
                    in_bytes(memory), in_bytes(estimate.total_memory)));
  }
}

std::string annotated_toml(const io::Config& complete, const io::Config& given) {
  constexpr size_t kComment = 44;
  std::string text;
  for (const auto& section : complete.table().sections()) {
    if (section == "compare") continue;
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    for (const auto& key : complete.table().keys()) {
      const auto& name = key.name();
      if (io::section_of(name) != section || !complete.has(name)) continue;
      const auto line = fmt::format("{} = {}", name.substr(section.size() + 1), io::toml_text(complete.value(name)));
      auto origin = given.origin(name);
      if (origin.starts_with("--set ")) origin = "--set";
      const bool was_auto = given.is(name, "auto") && !complete.is(name, "auto");
      text += fmt::format("{:<{}} # {}{}\n", line, kComment, origin, was_auto ? ", from \"auto\"" : "");
    }
  }
  return text;
}

}  // namespace prism::cli
