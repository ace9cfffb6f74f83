#include <fmt/format.h>

#include <memory>
#include <thread>

#include "prism/cli/corpus_options.h"
#include "prism/cli/data_commands.h"
#include "prism/cli/dataset_lines.h"
#include "prism/cli/interrupt.h"
#include "prism/cli/numbers.h"
#include "prism/cli/options.h"
#include "prism/cli/progress.h"
#include "prism/data/build.h"
#include "prism/data/output_folder.h"
#include "prism/text/tokenizer.h"
#include "prism/train/dataset.h"

namespace prism::cli {

namespace {

struct BuildOptions {
  CorpusOptions corpus;
  std::string tokenizer, out, eos = std::string(text::kEndOfText);
  std::vector<std::string> held_out_paths;
  data::HeldOut held_out{.fraction = 0.01, .documents = 0};
  int64_t shard_tokens = data::kDefaultShardTokens;
  int64_t workers = std::max<int64_t>(1, std::thread::hardware_concurrency());
};

void print_split(const data::Identity& identity) {
  const auto bytes = static_cast<double>(identity.text_bytes);
  fmt::print("  {:<6} {} tokens in {} shard{}, {} documents, {} of text\n", identity.split, grouped(identity.tokens),
             identity.shards.size(), identity.shards.size() == 1 ? "" : "s", grouped(identity.documents),
             in_bytes(bytes));
}

int build(const BuildOptions& options) {
  const Pace pace;
  const auto tokenizer = text::Tokenizer::load(options.tokenizer).with_end_of_text(options.eos);
  const data::Encoder encoder = train::encoder_for(tokenizer, options.tokenizer);
  { const data::OutputFolder can_be_written(options.out); }
  const data::Corpus corpus = options.corpus.open();
  data::BuildOptions settings;
  settings.held_out = options.held_out;
  settings.shard_tokens = options.shard_tokens;
  settings.workers = static_cast<int>(options.workers);
  if (settings.held_out.documents > 0 || !options.held_out_paths.empty()) settings.held_out.fraction = 0;
  if (!options.held_out_paths.empty()) settings.held_out_text.emplace(options.held_out_paths, options.corpus.reader);

  const Interrupt interrupt;
  ProgressLine line;
  const auto result = data::build(corpus, encoder, options.out, settings, [&](const data::Progress& progress) {
    interrupt.check();
    if (line.due()) line.update(progress_text(progress));
  });
  tokenizer.save(std::filesystem::path(options.out) / "tokenizer.json");
  line.clear();

  fmt::print("{}: built in {}\n", options.out, in_time(pace.seconds()));
  print_split(result.train);
  if (result.val) print_split(*result.val);
  fmt::print("  tokenizer.json, vocabulary {}, hash {}\n", grouped(tokenizer.size()), tokenizer.hash());
  for (const auto& remark : remarks(result)) fmt::print("  {}\n", remark);
  return 0;
}

Action attach(CLI::App& app) {
  auto options = std::make_shared<BuildOptions>();
  options->corpus.add_to(app);
  add_path(app, "--tokenizer", options->tokenizer, "tokenizer.json, or a folder that has one")->required();
  app.add_option("--eos", options->eos, "Token that ends every document")->type_name("TOKEN")->capture_default_str();
  add_path(app, "--out", options->out, "Folder for the shards; those in it are replaced")->required();
  auto* fraction =
      add_real(app, "--held-out", options->held_out.fraction, "Part of the documents that is not trained on", 0, 0.99);
  auto* documents =
      add_integer(app, "--held-out-documents", options->held_out.documents, "How many documents instead", 1)
          ->excludes(fraction)
          ->default_str("");
  app.add_option("--held-out-path", options->held_out_paths, "Text to hold out instead; may be repeated")
      ->type_name("PATH")
      ->allow_extra_args(false)
      ->excludes(fraction)
      ->excludes(documents);
  add_integer(app, "--shard-tokens", options->shard_tokens, "Most tokens of a shard", 1, INT32_MAX);
  add_integer(app, "--workers", options->workers, "Threads that encode", 1, 1024);
  return [options] { return build(*options); };
}

}  // namespace

Command data_build_command() {
  return {"build", "Turn text into token shards for training",
          "prism data build corpus/ more.jsonl.zst --tokenizer tokenizer.json --out data/\n"
          "prism train --config configs/demo.toml --set data.path=data/ --out runs/a",
          attach};
}

}  // namespace prism::cli
