#include "prism/text/tokenizer.h"

#include <fmt/format.h>

#include <memory>

#include "prism/cli/command.h"
#include "prism/cli/numbers.h"
#include "prism/io/json.h"

namespace prism::cli {

namespace {

struct InfoOptions {
  std::string tokenizer;
  std::string text = "PRISM doesn't hunt for 1 learning rate: it measures noise.";
};

// Every token in JSON's quotes, so that blanks and parts of characters can be seen.
std::string shown_tokens(const text::Tokenizer& tokenizer, const std::vector<text::TokenId>& ids) {
  std::string line;
  for (const text::TokenId id : ids) line += (line.empty() ? "" : " ") + io::quote(tokenizer.bytes(id));
  return line;
}

int info(const InfoOptions& options) {
  const auto tokenizer = text::Tokenizer::load(options.tokenizer);
  fmt::print("vocabulary   {} tokens\n", grouped(tokenizer.size()));
  fmt::print("hash         {}\n", tokenizer.hash());
  fmt::print("normalizer   {}\n", tokenizer.normalizer() == text::Normalizer::kNfc ? "NFC" : "none");
  fmt::print("words        as {}: {}\n", tokenizer.pre_split() == text::PreSplit::kQwen2 ? "Qwen2" : "GPT-2",
             text::pattern(tokenizer.pre_split()));
  for (const text::AddedToken& token : tokenizer.added_tokens()) {
    fmt::print("{:<12} {:>6}  {}\n", token.special ? "special" : "added", token.id, token.content);
  }
  const auto ids = tokenizer.encode(options.text);
  fmt::print("example      {}\n", io::quote(options.text));
  fmt::print("  {} tokens  {}\n", ids.size(), shown_tokens(tokenizer, ids));
  fmt::print("  ids        {}\n", fmt::join(ids, " "));
  return 0;
}

Action attach_info(CLI::App& app) {
  auto options = std::make_shared<InfoOptions>();
  app.add_option("tokenizer", options->tokenizer, "tokenizer.json, or a folder that has one")
      ->required()
      ->type_name("PATH");
  app.add_option("--text", options->text, "What to show as an example")->type_name("TEXT");
  return [options] { return info(*options); };
}

}  // namespace

Command tokenizer_command() {
  return {"tokenizer", "train a tokenizer, use it, look at it", "prism tokenizer info runs/a/tokenizer.json",
          [](CLI::App& app) {
            return attach_commands(app,
                                   {
                                       {"info", "vocabulary, hash, special tokens and an example",
                                        "prism tokenizer info tokenizer.json --text \"import torch\"", attach_info},
                                   });
          }};
}

}  // namespace prism::cli
