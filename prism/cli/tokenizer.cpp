#include "prism/text/tokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "prism/cli/command.h"
#include "prism/cli/console.h"
#include "prism/cli/options.h"
#include "prism/cli/run_header.h"
#include "prism/io/json.h"
#include "prism/text/bpe_trainer.h"

namespace prism::cli {
namespace {

struct TrainTokenizerOptions {
  CorpusOptions corpus;
  std::string out;
  text::TrainerOptions trainer;
  int64_t memory_mb = 4096;
};

std::string counting_line(const data::Corpus& corpus, uint64_t read, const Pace& pace) {
  const auto done = static_cast<double>(read), total = static_cast<double>(corpus.bytes());
  return fmt::format("counting words  {}  {} of {}  {}/s  ETA {}", in_percent(done, total), in_bytes(done),
                     in_bytes(total), in_bytes(pace.per_second(done)), in_time(pace.seconds_left(done, total)));
}

std::string merging_line(const text::TrainerProgress& progress, const Pace& pace) {
  const auto done = static_cast<double>(progress.tokens - 256), total = static_cast<double>(progress.vocabulary - 256);
  return fmt::format("merging  {}  {} of {} tokens, {} distinct words  ETA {}", in_percent(done, total),
                     grouped(progress.tokens), grouped(progress.vocabulary), grouped(progress.distinct_words),
                     in_time(pace.seconds_left(done, total)));
}

text::TrainerResult learn(const data::Corpus& corpus, text::TrainerOptions options) {
  const Interrupt interrupt;
  ProgressLine line;
  Pace counting;
  std::optional<Pace> merging;
  options.progress = [&](const text::TrainerProgress& progress) {
    interrupt.check();
    if (progress.phase != text::TrainerProgress::Phase::Merging) return;
    if (!merging) merging.emplace();
    if (line.due()) line.update(merging_line(progress, *merging));
  };
  data::Documents documents(corpus);
  data::Piece piece;
  const auto next = [&](std::string& text) {
    interrupt.check();
    if (line.due()) line.update(counting_line(corpus, documents.consumed(), counting));
    if (!documents.next(piece)) return false;
    text = std::move(piece.text);
    return true;
  };
  return text::train_bpe(next, options);
}

int train_tokenizer(const TrainTokenizerOptions& options) {
  const Pace pace;
  check_writable(options.out);
  const data::Corpus corpus = options.corpus.open();
  text::TrainerOptions trainer = options.trainer;
  trainer.word_memory = static_cast<size_t>(options.memory_mb) << 20;
  const text::TrainerResult result = learn(corpus, trainer);
  result.tokenizer.save(options.out);

  fmt::print("{}: {} tokens, learned from {} of text with {} distinct words in {}\n", options.out,
             grouped(result.tokenizer.size()), in_bytes(static_cast<double>(result.bytes)),
             grouped(result.distinct_words), in_time(pace.seconds()));
  fmt::print("hash {}\n", result.tokenizer.hash());
  if (const std::string skipped = skipped_files(corpus.skipped()); !skipped.empty()) fmt::print("{}\n", skipped);
  if (result.dropped_words > 0) {
    fmt::print("left out {} for lack of memory; raise --memory to count them\n",
               io::counted(result.dropped_words, "rare word"));
  }
  return 0;
}

void add_options(CLI::App& app, TrainTokenizerOptions& options) {
  text::TrainerOptions& trainer = options.trainer;
  options.corpus.add_to(app);
  add_path(app, "--out", options.out, "File to write, such as tokenizer.json")->required();
  add_integer(app, "--vocab", trainer.vocabulary, "Size of the vocabulary, special tokens included", 1);
  app.add_option("--special", trainer.special_tokens, "Add this special token; may be repeated")
      ->type_name("TOKEN")
      ->allow_extra_args(false)
      ->default_str(std::string(text::kEndOfText));
  add_integer(app, "--least-count", trainer.least_count, "Merge only pairs that occur at least this often", 1);
  app.add_flag("--allow-fewer", trainer.allow_fewer, "Accept a smaller vocabulary if the text has too few\npairs");
  add_choice<text::PreSplit>(app, "--words", trainer.pre_split,
                             {{"qwen2", text::PreSplit::Qwen2}, {"gpt2", text::PreSplit::Gpt2}},
                             "Rule that splits text into words");
  add_choice<text::Normalizer>(app, "--normalizer", trainer.normalizer,
                               {{"nfc", text::Normalizer::Nfc}, {"none", text::Normalizer::None}},
                               "Normalization applied to the text first");
  add_integer(app, "--threads", trainer.threads, "Threads that count words; 0: one per core", 0, 1024);
  add_integer(app, "--memory", options.memory_mb, "MB for distinct words; beyond that, the rarest are\nleft out", 1,
              int64_t{1} << 24);
}

struct TokenizerInfoOptions {
  std::string tokenizer;
  std::string text = "Muon's speed, without the hunt for a learning rate.";
};

// Returns every token in JSON quotes, which make blanks and parts of characters visible.
std::string quoted_tokens(const text::Tokenizer& tokenizer, const std::vector<text::TokenId>& ids) {
  std::string line;
  for (const text::TokenId id : ids) line += (line.empty() ? "" : " ") + io::quote(tokenizer.bytes(id));
  return line;
}

int tokenizer_info(const TokenizerInfoOptions& options) {
  const auto tokenizer = text::Tokenizer::load(options.tokenizer);
  print_row("vocabulary", fmt::format("{} tokens", grouped(tokenizer.size())));
  print_row("hash", tokenizer.hash());
  print_row("normalizer", tokenizer.normalizer() == text::Normalizer::Nfc ? "nfc" : "none");
  print_row("words", tokenizer.pre_split() == text::PreSplit::Qwen2 ? "qwen2" : "gpt2");
  if (tokenizer.added_tokens().empty()) print_row("special", "none");
  for (const text::AddedToken& token : tokenizer.added_tokens()) {
    print_row(token.special ? "special" : "added", fmt::format("{} {}", token.id, io::quote(token.content)));
  }
  const auto ids = tokenizer.encode(options.text);
  print_row("example", io::quote(options.text));
  print_row(
      "", fmt::format("{}: {}", io::counted(static_cast<int64_t>(ids.size()), "token"), quoted_tokens(tokenizer, ids)));
  print_row("", fmt::format("ids: {}", fmt::join(ids, " ")));
  return 0;
}

void add_options(CLI::App& app, TokenizerInfoOptions& options) {
  add_path(app, "tokenizer", options.tokenizer,
           "tokenizer.json, or a folder that contains it or\nvocab.json and merges.txt")
      ->required();
  app.add_option("--text", options.text, "Text to encode as an example")->type_name("TEXT");
}

}  // namespace

Command tokenizer_command() {
  const Command train = make_command("train", "Train a byte-level BPE tokenizer on text",
                                     "prism tokenizer train corpus/ notes.txt.zst --vocab 16384 --out tokenizer.json",
                                     add_options, train_tokenizer);
  const Command info =
      make_command("info", "Show a tokenizer's vocabulary and special tokens",
                   "prism tokenizer info tokenizer.json --text \"import torch\"", add_options, tokenizer_info);
  return {"tokenizer", "Train, use and inspect tokenizers", "prism tokenizer train corpus/ --out tokenizer.json",
          [=](CLI::App& app) {
            return attach_commands(app, {train, tokenizer_encode_command(), tokenizer_decode_command(), info});
          }};
}

}  // namespace prism::cli
