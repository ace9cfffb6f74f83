#include "prism/text/merge_learner.h"

#include <algorithm>
#include <array>

#include "prism/text/byte_level.h"

namespace prism::text {

namespace {

uint64_t pair_of(TokenId left, TokenId right) { return uint64_t{left} << 32 | right; }

}  // namespace

size_t PairCounts::find(uint64_t pair) const {
  const size_t mask = entries_.size() - 1;
  uint64_t h = pair * 0x9E3779B97F4A7C15u;
  h ^= h >> 32;
  size_t i = h & mask;
  while (entries_[i].pair != pair && entries_[i].pair != UINT64_MAX) i = (i + 1) & mask;
  return i;
}

PairCounts::Entry& PairCounts::at(uint64_t pair) {
  size_t i = find(pair);
  if (entries_[i].pair == pair) return entries_[i];
  if (2 * ++used_ > entries_.size()) {
    std::vector<Entry> old(2 * entries_.size());
    old.swap(entries_);
    for (const Entry& entry : old) {
      if (entry.pair != UINT64_MAX) entries_[find(entry.pair)] = entry;
    }
    i = find(pair);
  }
  entries_[i].pair = pair;
  return entries_[i];
}

MergeLearner::MergeLearner(const WordCounts& words) {
  std::array<unsigned char, 256> bytes{};
  for (int byte = 0; byte < 256; ++byte) bytes[byte] = static_cast<unsigned char>(byte);
  std::sort(bytes.begin(), bytes.end(), [](auto a, auto b) { return byte_to_character(a) < byte_to_character(b); });
  std::array<TokenId, 256> byte_tokens{};
  for (const unsigned char byte : bytes) {
    byte_tokens[byte] = static_cast<TokenId>(tokens_.size());
    tokens_.emplace_back(1, static_cast<char>(byte));
    ids_.emplace(tokens_.back(), byte_tokens[byte]);
  }
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words.word(i);
    words_.push_back({symbols_.size(), static_cast<uint32_t>(word.size()), words.count(i)});
    for (const char byte : word) symbols_.push_back(byte_tokens[static_cast<unsigned char>(byte)]);
  }
  for (uint32_t w = 0; w < words_.size(); ++w) {
    const TokenId* symbols = symbols_.data() + words_[w].begin;
    for (uint32_t i = 0; i + 1 < words_[w].size; ++i) change(pair_of(symbols[i], symbols[i + 1]), words_[w].count, w);
  }
  queue_changed();
}

// Changes the count of a pair. If it grows, the pair is new in the word, so the word is added to the pair's list.
void MergeLearner::change(uint64_t pair, int64_t count, uint32_t word) {
  PairCounts::Entry& entry = counts_.at(pair);
  entry.count += count;
  if (count <= 0) return;
  if (entry.list == PairCounts::kNoList) {
    if (free_lists_.empty()) {
      free_lists_.push_back(static_cast<uint32_t>(lists_.size()));
      lists_.emplace_back();
    }
    entry.list = free_lists_.back();
    free_lists_.pop_back();
    changed_.push_back(pair);
  }
  std::vector<uint32_t>& list = lists_[entry.list];
  if (list.empty() || list.back() != word) list.push_back(word);
}

void MergeLearner::queue_changed() {
  for (const uint64_t pair : changed_) {
    PairCounts::Entry& entry = counts_.at(pair);
    if (entry.count > 0) {
      lists_[entry.list].shrink_to_fit();
      queue_.push({entry.count, pair, entry.list});
    } else {
      lists_[entry.list].clear();
      free_lists_.push_back(entry.list);
    }
    entry.list = PairCounts::kNoList;
  }
  changed_.clear();
}

// Two pairs can give the same text ("aa"+"a", "a"+"aa"); they share one token.
TokenId MergeLearner::token_of(TokenId left, TokenId right) {
  const auto [place, is_new] = ids_.emplace(tokens_[left] + tokens_[right], static_cast<TokenId>(tokens_.size()));
  if (is_new) tokens_.push_back(place->first);
  return place->second;
}

void MergeLearner::merge_in_word(uint32_t w, TokenId left, TokenId right, TokenId result) {
  TokenId* symbols = symbols_.data() + words_[w].begin;
  const uint32_t size = words_[w].size;
  const int64_t count = words_[w].count;
  uint32_t out = 0;
  for (uint32_t i = 0; i < size; ++i, ++out) {
    if (symbols[i] != left || i + 1 == size || symbols[i + 1] != right) {
      symbols[out] = symbols[i];
      continue;
    }
    if (out > 0) {
      change(pair_of(symbols[out - 1], left), -count, w);
      change(pair_of(symbols[out - 1], result), count, w);
    }
    if (i + 2 < size) {
      change(pair_of(right, symbols[i + 2]), -count, w);
      change(pair_of(result, symbols[i + 2]), count, w);
    }
    symbols[out] = result;
    ++i;
  }
  words_[w].size = out;
}

void MergeLearner::learn(size_t tokens, int64_t least_count, const std::function<void()>& step) {
  while (tokens_.size() < tokens && !queue_.empty()) {
    Candidate best = queue_.top();
    queue_.pop();
    if (const int64_t now = counts_.at(best.pair).count; now != best.count) {
      best.count = now;
      queue_.push(best);
      continue;
    }
    if (best.count < std::max(int64_t{1}, least_count)) return;
    const auto left = static_cast<TokenId>(best.pair >> 32);
    const auto right = static_cast<TokenId>(best.pair);
    const TokenId result = token_of(left, right);
    merges_.emplace_back(left, right);
    const std::vector<uint32_t> words = std::move(lists_[best.list]);
    lists_[best.list].clear();
    free_lists_.push_back(best.list);
    for (const uint32_t w : words) merge_in_word(w, left, right, result);
    queue_changed();
    step();
  }
}

}  // namespace prism::text
