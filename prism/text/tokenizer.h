#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prism/text/added_tokens.h"
#include "prism/text/bpe.h"
#include "prism/text/pre_split.h"

namespace prism::text {

inline constexpr std::string_view kEndOfText = "<|endoftext|>";

enum class Normalizer { kNone, kNfc };

// What a tokenizer is made of. Vocabulary and merges are written in the characters of byte_level.h.
struct TokenizerParts {
  std::vector<std::pair<std::string, TokenId>> vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;  // the most frequent pair first
  std::vector<AddedToken> added_tokens;
  Normalizer normalizer = Normalizer::kNfc;
  PreSplit pre_split = PreSplit::kQwen2;
  bool ignore_merges = false;  // a word that is a token becomes it, whatever the merges say
};

// How to read a vocabulary that comes without a tokenizer.json.
struct VocabularyOptions {
  Normalizer normalizer = Normalizer::kNfc;
  PreSplit pre_split = PreSplit::kQwen2;
  // Each takes the id it has in the vocabulary, or the next free one.
  std::vector<std::string> special_tokens = {std::string(kEndOfText), "<|im_start|>", "<|im_end|>"};
};

enum class SpecialTokens {
  kParse,  // "<|endoftext|>" in the text becomes the token
  kText,   // it becomes the tokens of its thirteen characters; for text that nobody should control with it
};

// Byte-level BPE of the GPT-2 and Qwen2 family. The ids are those of the Hugging Face `tokenizers` package for every
// input, where its encode() adds no special tokens. A text goes through these steps:
//   broken UTF-8 replaced (utf8.h) → added tokens found → NFC (unicode.h) → added tokens with `normalized` found →
//   words (pre_split.h) → merges (bpe.h).
// Immutable, cheap to copy, and fit for several threads at once.
class Tokenizer {
 public:
  // Throws prism::Error where the parts do not fit together; `where` begins the message.
  explicit Tokenizer(TokenizerParts parts, std::string_view where = "tokenizer");

  // A tokenizer.json, or a folder that has one, or one that has vocab.json and merges.txt. What the file asks for and
  // Prism cannot do is an error that names it, never ignored.
  static Tokenizer load(const std::filesystem::path& path);
  static Tokenizer from_json(std::string_view json, std::string_view where = "tokenizer.json");
  static Tokenizer load_vocabulary(const std::filesystem::path& vocabulary, const std::filesystem::path& merges,
                                   const VocabularyOptions& options = {});

  void save(const std::filesystem::path& path) const;  // a tokenizer.json, replaced all at once
  std::string to_json() const;

  std::vector<TokenId> encode(std::string_view text, SpecialTokens specials = SpecialTokens::kParse) const;
  void encode(std::string_view text, std::vector<TokenId>& out, SpecialTokens specials = SpecialTokens::kParse) const;

  // Bytes that make no character become U+FFFD. Ids without a token give nothing.
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens = false) const;
  std::string_view bytes(TokenId id) const;  // what the token stands for; may be part of a character

  int64_t size() const;                                     // the greatest id, plus one: the rows an embedding needs
  std::optional<TokenId> id(std::string_view token) const;  // as the vocabulary writes it
  std::optional<TokenId> end_of_text() const {
    return id(end_of_text_);
  }  // ends every document; none if it has no such
  const std::string& end_of_text_name() const { return end_of_text_; }
  Tokenizer with_end_of_text(std::string token) const;  // the same, but for the token that ends documents
  bool is_special(TokenId id) const;
  const std::vector<AddedToken>& added_tokens() const;  // in order of ids
  Normalizer normalizer() const;
  PreSplit pre_split() const;

  // Identity: the XXH3 (io/hash.h) of all that decides ids and text, the same however the file was written.
  const std::string& hash() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
  std::string end_of_text_ = std::string(kEndOfText);
};

}  // namespace prism::text
