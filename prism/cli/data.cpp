#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <thread>

#include "prism/cli/command.h"
#include "prism/cli/console.h"
#include "prism/cli/options.h"
#include "prism/cli/run_header.h"
#include "prism/data/build.h"
#include "prism/data/shards.h"
#include "prism/io/error.h"
#include "prism/io/folder_lock.h"
#include "prism/io/json.h"
#include "prism/text/tokenizer.h"
#include "prism/train/dataset.h"

namespace prism::cli {
namespace {

namespace fs = std::filesystem;

struct BuildOptions {
  CorpusOptions corpus;
  std::string tokenizer, out, eos = std::string(text::kEndOfText);
  std::vector<std::string> held_out_paths;
  data::HeldOut held_out{.fraction = 0.01, .documents = 0};
  int64_t shard_tokens = data::kDefaultShardTokens;
  int64_t workers = std::max<int64_t>(1, std::thread::hardware_concurrency());
};

std::string shards_of(const data::Identity& identity) {
  return io::counted(static_cast<int64_t>(identity.shards.size()), "shard");
}

void print_built(const data::Identity& identity) {
  const auto bytes = static_cast<double>(identity.text_bytes);
  fmt::print("  {:<6} {} tokens in {}, {}, {} of text\n", identity.split, grouped(identity.tokens), shards_of(identity),
             io::counted(identity.documents, "document"), in_bytes(bytes));
}

// Throws if the tokenizer that `build` saves would replace a different one in a folder without shards: a run or a model
// could no longer be used.
void check_no_other_tokenizer(const fs::path& folder, const text::Tokenizer& tokenizer) {
  const fs::path file = folder / "tokenizer.json";
  if (!fs::exists(file) || data::has_shards(folder, "train")) return;
  if (const auto hash = text::Tokenizer::load(file).hash(); hash != tokenizer.hash())
    throw Error(fmt::format(
        "{}: expected no tokenizer or the one of --tokenizer (hash {}), got hash {}; choose another folder (--out)",
        file.string(), tokenizer.hash(), hash));
}

int build(const BuildOptions& options) {
  const Pace pace;
  const auto tokenizer = text::Tokenizer::load(options.tokenizer).with_end_of_text(options.eos);
  const data::Encoder encoder = train::encoder_for(tokenizer, options.tokenizer);
  check_no_other_tokenizer(options.out, tokenizer);
  { const io::FolderLock can_be_written(options.out); }
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
    if (line.due()) line.update(build_progress_text(progress));
  });
  tokenizer.save(fs::path(options.out) / "tokenizer.json");
  line.clear();

  fmt::print("{}: built in {}\n", options.out, in_time(pace.seconds()));
  print_built(result.train);
  if (result.val) print_built(*result.val);
  fmt::print("  tokenizer.json, vocabulary {}, hash {}\n", grouped(tokenizer.size()), tokenizer.hash());
  for (const auto& remark : remarks(result)) fmt::print("  {}\n", remark);
  return 0;
}

void add_options(CLI::App& app, BuildOptions& options) {
  options.corpus.add_to(app);
  add_path(app, "--tokenizer", options.tokenizer, "tokenizer.json, or a folder that contains one")->required();
  app.add_option("--eos", options.eos, "Token that ends every document")->type_name("TOKEN")->capture_default_str();
  add_path(app, "--out", options.out, "Folder for the shards; replaces those already there")->required();
  auto* fraction = add_real(app, "--held-out", options.held_out.fraction,
                            "Fraction of the documents to hold out of training", 0, 0.99);
  auto* documents =
      add_integer(app, "--held-out-documents", options.held_out.documents, "Hold out this many documents instead", 1)
          ->excludes(fraction)
          ->default_str("");
  app.add_option("--held-out-path", options.held_out_paths, "Hold out this text instead; may be repeated")
      ->type_name("PATH")
      ->allow_extra_args(false)
      ->excludes(fraction)
      ->excludes(documents);
  add_integer(app, "--shard-tokens", options.shard_tokens, "Maximum number of tokens in a shard", 1, INT32_MAX);
  add_integer(app, "--workers", options.workers, "Number of threads that encode", 1, 1024);
}

struct DatasetInfoOptions {
  std::string path, tokenizer;
  bool verify = false;
};

// Prints the header of a single shard. It does not say which tokenizer made the shard.
int shard_info(const fs::path& path) {
  const io::MappedFile file(path);
  const data::ShardHeader header = data::check_shard(file.bytes(), path.string());
  print_row("shard", fmt::format("{} tokens of {} bytes each", grouped(header.tokens), header.token_bytes));
  return 0;
}

// Returns the tokenizer that the shards must match: the one given, else the one beside them.
std::optional<text::Tokenizer> tokenizer_of(const DatasetInfoOptions& options) {
  if (!options.tokenizer.empty()) return text::Tokenizer::load(options.tokenizer);
  const fs::path beside = fs::path(options.path) / "tokenizer.json";
  if (fs::exists(beside)) return text::Tokenizer::load(beside);
  return std::nullopt;
}

void print_split(const data::Shards& shards, const std::optional<text::Tokenizer>& tokenizer) {
  constexpr int64_t kShown = 24;
  const data::Identity& identity = shards.identity();
  const auto bytes = static_cast<double>(identity.text_bytes);
  print_row(identity.split, fmt::format("{} tokens in {}", grouped(identity.tokens), shards_of(identity)));
  print_row("", fmt::format("{}, {} of text, {:.2f} bytes per token", io::counted(identity.documents, "document"),
                            in_bytes(bytes), bytes / static_cast<double>(identity.tokens)));
  if (!tokenizer) return;
  std::vector<int64_t> first(static_cast<size_t>(std::min(kShown, identity.tokens)));
  shards.read(0, first);
  const std::vector<text::TokenId> ids(first.begin(), first.end());
  print_row("", "begins " + io::quote(tokenizer->decode(ids)));
}

int dataset_info(const DatasetInfoOptions& options) {
  if (fs::is_regular_file(options.path)) return shard_info(options.path);
  if (!fs::exists(options.path))
    throw Error(fmt::format("{}: expected a folder of token shards, found nothing", options.path));
  const auto tokenizer = tokenizer_of(options);
  const std::string hash = tokenizer ? tokenizer->hash() : "";
  const data::Shards train(options.path, "train", hash);
  std::optional<data::Shards> val;
  if (data::has_shards(options.path, "val")) val.emplace(options.path, "val", hash);
  if (options.verify) {
    train.verify();
    if (val) val->verify();
  }

  const data::Identity& identity = train.identity();
  print_split(train, tokenizer);
  if (val) print_split(*val, tokenizer);
  print_row("tokenizer", identity.tokenizer_hash);
  print_row("", fmt::format("vocabulary {}, documents end with token {}", grouped(identity.vocab_size),
                            identity.end_of_text));
  for (const data::Source& source : identity.sources) {
    print_row("source", source.path);
    print_row("", fmt::format("{}, {}, hash {}", io::counted(source.files, "file"),
                              in_bytes(static_cast<double>(source.bytes)), source.hash));
  }
  if (options.verify) print_row("verified", "the tokens of every shard match their hash");
  return 0;
}

void add_options(CLI::App& app, DatasetInfoOptions& options) {
  add_path(app, "path", options.path, "Folder of shards, or a single shard")->required();
  add_path(app, "--tokenizer", options.tokenizer,
           "Check that this tokenizer made the shards\n(default: the tokenizer.json beside them)");
  app.add_flag("--verify", options.verify, "Read all tokens and check their hashes");
}

}  // namespace

Command data_command() {
  const Command build_shards =
      make_command("build", "Turn text into token shards for training",
                   "prism data build corpus/ more.jsonl.zst --tokenizer tokenizer.json --out data/\n"
                   "prism train --config configs/demo.toml --set data.path=data/ --out runs/a",
                   add_options, build);
  const Command info = make_command("info", "Show what token shards contain, and verify them",
                                    "prism data info data/ --verify", add_options, dataset_info);
  return {"data", "Turn text into token shards, and inspect them",
          "prism data build corpus/ --tokenizer tokenizer.json --out data/", [=](CLI::App& app) {
            return attach_commands(app, {build_shards, info});
          }};
}

}  // namespace prism::cli
