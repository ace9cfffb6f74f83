#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "prism/cli/data_commands.h"
#include "prism/cli/numbers.h"
#include "prism/cli/options.h"
#include "prism/data/shards.h"
#include "prism/io/error.h"
#include "prism/io/json.h"
#include "prism/text/tokenizer.h"

namespace prism::cli {

namespace fs = std::filesystem;

namespace {

struct InfoOptions {
  std::string path, tokenizer;
  bool verify = false;
};

void print(std::string_view name, std::string_view value) { fmt::print("{:<12} {}\n", name, value); }

// A shard by itself: the header says how many tokens, and nothing says of which tokenizer.
int shard_info(const fs::path& path) {
  const io::MappedFile file(path);
  const data::ShardHeader header = data::check_shard(file.bytes(), path.string());
  print("shard", fmt::format("{} tokens of {} bytes", grouped(header.tokens), header.token_bytes));
  return 0;
}

// The tokenizer the shards must be of: the one named, or the one that lies beside them.
std::optional<text::Tokenizer> tokenizer_of(const InfoOptions& options) {
  if (!options.tokenizer.empty()) return text::Tokenizer::load(options.tokenizer);
  const fs::path beside = fs::path(options.path) / "tokenizer.json";
  if (fs::exists(beside)) return text::Tokenizer::load(beside);
  return std::nullopt;
}

void print_split(const data::Shards& shards, const std::optional<text::Tokenizer>& tokenizer) {
  constexpr int64_t kShown = 24;
  const data::Identity& identity = shards.identity();
  const auto bytes = static_cast<double>(identity.text_bytes);
  print(identity.split, fmt::format("{} tokens in {} shard{}", grouped(identity.tokens), identity.shards.size(),
                                    identity.shards.size() == 1 ? "" : "s"));
  print("", fmt::format("{} documents, {} of text, {:.2f} bytes a token", grouped(identity.documents), in_bytes(bytes),
                        bytes / static_cast<double>(identity.tokens)));
  if (!tokenizer) return;
  std::vector<int64_t> first(static_cast<size_t>(std::min(kShown, identity.tokens)));
  shards.read(0, first);
  const std::vector<text::TokenId> ids(first.begin(), first.end());
  print("", "begins " + io::quote(tokenizer->decode(ids)));
}

int info(const InfoOptions& options) {
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
  print("tokenizer", identity.tokenizer_hash);
  print("",
        fmt::format("vocabulary {}, documents end with token {}", grouped(identity.vocab_size), identity.end_of_text));
  for (const data::Source& source : identity.sources) {
    print("source", source.path);
    print("", fmt::format("{} file{}, {}, hash {}", grouped(source.files), source.files == 1 ? "" : "s",
                          in_bytes(static_cast<double>(source.bytes)), source.hash));
  }
  if (options.verify) print("verified", "the tokens of every shard have the hash they should have");
  return 0;
}

Action attach(CLI::App& app) {
  auto options = std::make_shared<InfoOptions>();
  add_path(app, "path", options->path, "Folder of shards, or one shard")->required();
  add_path(app, "--tokenizer", options->tokenizer,
           "Refuse shards of any other tokenizer\n(default: the tokenizer.json beside the shards)");
  app.add_flag("--verify", options->verify, "Read all tokens and compare their hashes");
  return [options] { return info(*options); };
}

}  // namespace

Command data_info_command() {
  return {"info", "Show what token shards hold, and whether they are whole", "prism data info data/ --verify", attach};
}

}  // namespace prism::cli
