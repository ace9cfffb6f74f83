#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "prism/text/bpe.h"
#include "prism/text/word_counts.h"

namespace prism::text {

// Counts of token pairs, and for each pair the list that is being filled, if any.
class PairCounts {
 public:
  static constexpr uint32_t kNoList = UINT32_MAX;
  struct Entry {
    uint64_t pair = UINT64_MAX;
    int64_t count = 0;
    uint32_t list = kNoList;
  };

  Entry& at(uint64_t pair);  // creates it with count 0 if missing; valid until the next call

 private:
  size_t find(uint64_t pair) const;

  std::vector<Entry> entries_ = std::vector<Entry>(1 << 12);
  size_t used_ = 0;
};

// Learns merges from counted words (bpe_trainer.h states the rule).
class MergeLearner {
 public:
  explicit MergeLearner(const WordCounts& words);

  // Merges pairs until there are `tokens` tokens or no pair occurs `least_count` times. Calls `step` after each merge.
  void learn(size_t tokens, int64_t least_count, const std::function<void()>& step);

  const std::vector<std::string>& tokens() const { return tokens_; }                  // as bytes
  const std::vector<std::pair<TokenId, TokenId>>& merges() const { return merges_; }  // in order

 private:
  struct Candidate {
    int64_t count;
    uint64_t pair;
    uint32_t list;  // of the words that hold the pair
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };
  struct Word {
    size_t begin;  // in symbols_
    uint32_t size;
    int64_t count;
  };

  void change(uint64_t pair, int64_t count, uint32_t word);
  void queue_changed();
  void merge_in_word(uint32_t word, TokenId left, TokenId right, TokenId result);
  TokenId token_of(TokenId left, TokenId right);

  std::vector<TokenId> symbols_;
  std::vector<Word> words_;
  PairCounts counts_;
  std::vector<std::vector<uint32_t>> lists_;
  std::vector<uint32_t> free_lists_;
  std::vector<uint64_t> changed_;  // pairs with a list being filled
  std::priority_queue<Candidate> queue_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, TokenId> ids_;
  std::vector<std::pair<TokenId, TokenId>> merges_;
};

}  // namespace prism::text
