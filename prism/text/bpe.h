#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace prism::text {

using TokenId = uint32_t;

struct MergeRule {
  TokenId left, right, result;
};

// The merge rules: pairs of tokens, their results and their ranks. The position of a rule in the list is its rank. A
// pair that is listed twice has the later rank.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank;
    TokenId result;
  };
  static constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();

  explicit MergeTable(std::span<const MergeRule> rules);

  // The merge of the pair; its rank is kNoRank if there is none.
  Merge find(TokenId left, TokenId right) const {
    const uint64_t key = uint64_t{left} << 32 | right;
    for (size_t i = slot(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].merge;
      if (slots_[i].key == kEmpty) return {kNoRank, 0};
    }
  }

 private:
  static constexpr uint64_t kEmpty = std::numeric_limits<uint64_t>::max();
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge{kNoRank, 0};
  };
  size_t slot(uint64_t key) const { return key * 0x9E3779B97F4A7C15u >> shift_; }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  int shift_ = 0;
};

struct StringHash {
  using is_transparent = void;  // NOLINT(readability-identifier-naming): the standard library looks for it
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
using TokenMap = std::unordered_map<std::string, TokenId, StringHash, std::equal_to<>>;

struct BpeModel {
  std::array<TokenId, 256> byte_tokens;
  MergeTable merges;
  TokenMap whole_words;  // words, as bytes, that become their token without any merge (`ignore_merges`)
};

// Turns words into tokens: starts from the bytes and repeatedly applies the merge of lowest rank, the leftmost of
// equals. Caches frequent words. Takes O(n log n) for a word of n bytes. Not thread-safe.
class BpeEncoder {
 public:
  explicit BpeEncoder(const BpeModel& model);  // `model` must outlive it

  // Appends the tokens of `word`, which must not be empty. `text_end` is the end of the readable memory after it.
  void encode(std::string_view word, const char* text_end, std::vector<TokenId>& out);

 private:
  static constexpr size_t kLongestKey = 31;
  static constexpr size_t kMostTokens = 7;
  static constexpr size_t kSlotBits = 16;

  struct Key {
    std::array<uint64_t, 4> words;  // the bytes, zeros, the length in the last byte
    bool operator==(const Key& other) const {
      uint64_t difference = 0;
      for (size_t i = 0; i < words.size(); ++i) difference |= words[i] ^ other.words[i];
      return difference == 0;
    }
  };
  struct alignas(64) Slot {
    Key key;
    uint32_t count;
    std::array<TokenId, kMostTokens> tokens;
  };

  static Key key_of(std::string_view word, const char* text_end);
  static size_t slot_of(const Key& key);
  void merge(std::string_view word);  // into tokens_
  void merge_short();
  void merge_long();

  const BpeModel& model_;
  std::vector<Slot> cache_;
  std::vector<TokenId> tokens_;
  std::vector<MergeTable::Merge> pairs_;  // of each token with the next
  std::vector<uint32_t> previous_, next_;
  std::vector<uint64_t> queue_;  // rank and position, a heap with the least on top
};

}  // namespace prism::text
