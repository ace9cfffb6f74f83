#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "prism/cli/numbers.h"
#include "prism/cli/options.h"
#include "prism/cli/tokenizer_commands.h"
#include "prism/io/json.h"
#include "prism/text/tokenizer.h"

namespace prism::cli {

namespace {

struct InfoOptions {
  std::string tokenizer;
  std::string text = "Muon's speed, without the hunt for a learning rate.";
};

// Every token in JSON's quotes, so that blanks and parts of characters can be seen.
std::string quoted_tokens(const text::Tokenizer& tokenizer, const std::vector<text::TokenId>& ids) {
  std::string line;
  for (const text::TokenId id : ids) line += (line.empty() ? "" : " ") + io::quote(tokenizer.bytes(id));
  return line;
}

void print(std::string_view name, std::string_view value) { fmt::print("{:<12} {}\n", name, value); }

int info(const InfoOptions& options) {
  const auto tokenizer = text::Tokenizer::load(options.tokenizer);
  print("vocabulary", fmt::format("{} tokens", grouped(tokenizer.size())));
  print("hash", tokenizer.hash());
  print("normalizer", tokenizer.normalizer() == text::Normalizer::kNfc ? "nfc" : "none");
  print("words", tokenizer.pre_split() == text::PreSplit::kQwen2 ? "qwen2" : "gpt2");
  if (tokenizer.added_tokens().empty()) print("special", "none");
  for (const text::AddedToken& token : tokenizer.added_tokens()) {
    print(token.special ? "special" : "added", fmt::format("{} {}", token.id, io::quote(token.content)));
  }
  const auto ids = tokenizer.encode(options.text);
  print("example", io::quote(options.text));
  print("", fmt::format("{} tokens: {}", ids.size(), quoted_tokens(tokenizer, ids)));
  print("", fmt::format("ids: {}", fmt::join(ids, " ")));
  return 0;
}

Action attach(CLI::App& app) {
  auto options = std::make_shared<InfoOptions>();
  add_path(app, "tokenizer", options->tokenizer,
           "tokenizer.json, or a folder with it or with\nvocab.json and merges.txt")
      ->required();
  app.add_option("--text", options->text, "What to show as an example")->type_name("TEXT");
  return [options] { return info(*options); };
}

}  // namespace

Command tokenizer_info_command() {
  return {"info", "Show vocabulary, hash, special tokens and an example",
          "prism tokenizer info tokenizer.json --text \"import torch\"", attach};
}

}  // namespace prism::cli
