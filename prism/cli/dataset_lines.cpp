#include "prism/cli/dataset_lines.h"

#include <fmt/format.h>

#include "prism/cli/corpus_options.h"
#include "prism/cli/numbers.h"
#include "prism/data/output_folder.h"

namespace prism::cli {
namespace {

std::string text_of(const text::TrainerProgress& p) {
  if (p.phase == text::TrainerProgress::Phase::kCounting) {
    return fmt::format("tokenizer: counting words  {} read  {} distinct", in_bytes(static_cast<double>(p.bytes)),
                       grouped(p.distinct_words));
  }
  return fmt::format("tokenizer: merging  {} of {} tokens", grouped(p.tokens), grouped(p.vocabulary));
}

}  // namespace

std::string progress_text(const data::Progress& p) {
  const char* stage = p.stage == data::Stage::kHash   ? "hashing"
                      : p.stage == data::Stage::kScan ? "reading"
                                                      : "encoding";
  const auto done = static_cast<double>(p.bytes), total = static_cast<double>(p.total_bytes);
  const auto documents = p.documents > 0 ? ("  " + io::counted(p.documents, "document")) : "";
  return fmt::format("data: {}  {}  {} of {}  {:.1f} MB/s  ETA {}{}", stage, in_percent(done, total), in_bytes(done),
                     in_bytes(total), p.mb_per_s, in_time(p.eta_s), documents);
}

std::string data_line(const train::DatasetSize& data) {
  return fmt::format("data    {}{} tokens an epoch, {} held out, vocabulary {}", data.counted ? "" : "about ",
                     grouped(data.epoch_tokens), grouped(data.val_tokens), grouped(data.vocab));
}

std::vector<std::string> remarks(const data::BuildResult& result) {
  std::vector<std::string> lines;
  if (result.cut_bytes > 0) {
    lines.push_back(fmt::format("one document, without separators: its end ({}) is held out",
                                in_bytes(static_cast<double>(result.cut_bytes))));
  }
  if (result.empty_documents > 0) lines.push_back(io::counted(result.empty_documents, "empty document") + " left out");
  if (result.null_rows > 0) lines.push_back("null left out in " + io::counted(result.null_rows, "row"));
  if (result.broken_characters > 0)
    lines.push_back("U+FFFD replaces what is not UTF-8, in " + io::counted(result.broken_characters, "place"));
  if (const auto skipped = skipped_files(result.skipped); !skipped.empty()) lines.push_back(skipped);
  return lines;
}

train::Dataset open_dataset(const io::Config& config, ProgressLine& line,
                            const std::optional<train::TrainedData>& trained) {
  const std::filesystem::path out = config.string("run.out");
  { const data::OutputFolder can_be_written(out); }  // or say so before hours of work
  train::DatasetProgress progress;
  progress.tokenizer = [&](const text::TrainerProgress& p) {
    if (line.due()) line.update(text_of(p));
  };
  progress.shards = [&](const data::Progress& p) {
    if (line.due()) line.update(progress_text(p));
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
  return dataset;
}

}  // namespace prism::cli
