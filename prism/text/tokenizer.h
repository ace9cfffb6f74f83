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

enum class Normalizer { None, Nfc };

// The parts of a tokenizer. Vocabulary and merges use the characters of byte_level.h.
struct TokenizerParts {
  std::vector<std::pair<std::string, TokenId>> vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;  // the most frequent pair first
  std::vector<AddedToken> added_tokens;
  Normalizer normalizer = Normalizer::Nfc;
  PreSplit pre_split = PreSplit::Qwen2;
  bool ignore_merges = false;  // a word that is in the vocabulary becomes that token, whatever the merges
};

// Settings for reading a vocabulary that comes without a tokenizer.json.
struct VocabularyOptions {
  Normalizer normalizer = Normalizer::Nfc;
  PreSplit pre_split = PreSplit::Qwen2;
  // Each has its id in the vocabulary, or gets the next free one.
  std::vector<std::string> special_tokens = {std::string(kEndOfText), "<|im_start|>", "<|im_end|>"};
};

enum class SpecialTokens {
  Parse,  // "<|endoftext|>" in the text becomes the token
  Text,   // it becomes the tokens of its thirteen characters; for untrusted text
};

// Byte-level BPE of the GPT-2 and Qwen2 family. For every input the ids equal those of the Hugging Face `tokenizers`
// package if its encode() adds no special tokens. A text goes through these steps:
//   broken UTF-8 replaced (utf8.h) → added tokens found → NFC (unicode.h) → added tokens with `normalized` found →
//   words (pre_split.h) → merges (bpe.h).
// Immutable, cheap to copy and thread-safe.
class Tokenizer {
 public:
  // Throws prism::Error if the parts do not match each other; `where` begins the message.
  explicit Tokenizer(TokenizerParts parts, std::string_view where = "tokenizer");

  // Loads a tokenizer.json, a folder that has one, or a folder that has vocab.json and merges.txt. Throws prism::Error
  // that names the setting if the file uses one that is not supported.
  static Tokenizer load(const std::filesystem::path& path);
  static Tokenizer from_json(std::string_view json, std::string_view where = "tokenizer.json");
  static Tokenizer load_vocabulary(const std::filesystem::path& vocabulary, const std::filesystem::path& merges,
                                   const VocabularyOptions& options = {});

  void save(const std::filesystem::path& path) const;  // writes a tokenizer.json atomically
  std::string to_json() const;

  std::vector<TokenId> encode(std::string_view text, SpecialTokens specials = SpecialTokens::Parse) const;
  void encode(std::string_view text, std::vector<TokenId>& out, SpecialTokens specials = SpecialTokens::Parse) const;

  // Bytes that are not valid UTF-8 become U+FFFD. Ids without a token are skipped.
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens = false) const;
  std::string_view bytes(TokenId id) const;  // the bytes of a token; may be part of a character

  int64_t size() const;                                     // the largest id plus one: the rows an embedding needs
  std::optional<TokenId> id(std::string_view token) const;  // the id of a token as the vocabulary writes it
  // The token that ends every document; none if the vocabulary lacks it.
  std::optional<TokenId> end_of_text() const { return id(end_of_text_); }
  const std::string& end_of_text_name() const { return end_of_text_; }
  Tokenizer with_end_of_text(std::string token) const;  // a copy with another token that ends documents
  bool is_special(TokenId id) const;
  const std::vector<AddedToken>& added_tokens() const;  // in order of ids
  Normalizer normalizer() const;
  PreSplit pre_split() const;

  // The XXH3 (io/hash.h) of everything that determines ids and text. It does not depend on the layout of the file.
  const std::string& hash() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
  std::string end_of_text_ = std::string(kEndOfText);
};

}  // namespace prism::text
