#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "prism/text/bpe.h"
#include "prism/text/tokenizer.h"

namespace prism::text {

// The parts of a tokenizer, checked against each other and indexed. It holds views of itself, so it cannot be moved.
class Vocabulary {
 public:
  Vocabulary(TokenizerParts parts, std::string_view where);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  struct Token {
    std::string text;   // as the file writes it; empty if the id has no token
    std::string bytes;  // the bytes that it stands for
    bool in_model = false;
    bool special = false;
  };
  const std::vector<Token>& tokens() const { return tokens_; }                   // by id
  const std::vector<MergeRule>& merges() const { return merges_; }               // by rank, each pair once
  const std::vector<AddedToken>& added_tokens() const { return added_tokens_; }  // by id
  const TokenId* find(std::string_view token) const;

  const Normalizer normalizer;
  const PreSplit pre_split;
  const bool ignore_merges;

  std::array<TokenId, 256> byte_tokens() const { return byte_tokens_; }
  std::string hash() const;

 private:
  void add_model_tokens(std::vector<std::pair<std::string, TokenId>>& vocabulary, size_t added_tokens);
  void check_text(std::string_view token) const;
  void find_byte_tokens();
  void add_merges(const std::vector<std::pair<std::string, std::string>>& merges);
  void add_added_tokens(std::vector<AddedToken> added_tokens);
  void check_blanks(const std::vector<AddedToken>& added_tokens) const;
  TokenId expected_id(const AddedToken& token, TokenId next) const;

  std::string where_;
  size_t model_size_ = 0;
  std::vector<Token> tokens_;
  std::unordered_map<std::string_view, TokenId> ids_;  // views of tokens_
  std::array<TokenId, 256> byte_tokens_{};
  std::vector<MergeRule> merges_;
  std::vector<AddedToken> added_tokens_;
};

}  // namespace prism::text
