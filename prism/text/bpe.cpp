#include "prism/text/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

namespace prism::text {

namespace {

constexpr size_t kShortWord = 64;                                 // up to this size, scanning is faster than a heap
constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();  // no token on this side
constexpr TokenId kMerged = std::numeric_limits<TokenId>::max();  // became part of the token before it

uint64_t low_bytes(uint64_t word, size_t count) { return count >= 8 ? word : word & ((uint64_t{1} << 8 * count) - 1); }

}  // namespace

MergeTable::MergeTable(std::span<const MergeRule> rules) {
  slots_.resize(std::bit_ceil(rules.size() * 3 / 2 + 2));
  mask_ = slots_.size() - 1;
  shift_ = 64 - std::countr_zero(slots_.size());
  for (size_t rank = 0; rank < rules.size(); ++rank) {
    const uint64_t key = uint64_t{rules[rank].left} << 32 | rules[rank].right;
    size_t i = slot(key);
    while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & mask_;
    slots_[i] = {key, {static_cast<uint32_t>(rank), rules[rank].result}};
  }
}

BpeEncoder::BpeEncoder(const BpeModel& model) : model_(model), cache_(size_t{1} << kSlotBits) {}

void BpeEncoder::encode(std::string_view word, const char* text_end, std::vector<TokenId>& out) {
  if (word.size() > kLongestKey) {
    merge(word);
    out.insert(out.end(), tokens_.begin(), tokens_.end());
    return;
  }
  const Key key = key_of(word, text_end);
  Slot& slot = cache_[slot_of(key)];
  if (slot.key == key) {
    out.insert(out.end(), slot.tokens.begin(), slot.tokens.begin() + slot.count);
    return;
  }
  merge(word);
  out.insert(out.end(), tokens_.begin(), tokens_.end());
  if (tokens_.size() > kMostTokens) return;
  slot.key = key;
  slot.count = static_cast<uint32_t>(tokens_.size());
  std::copy(tokens_.begin(), tokens_.end(), slot.tokens.begin());
}

BpeEncoder::Key BpeEncoder::key_of(std::string_view word, const char* text_end) {
  Key key{};
  if (static_cast<size_t>(text_end - word.data()) >= sizeof key) {
    std::memcpy(&key, word.data(), sizeof key);
    for (size_t i = 0; i < key.words.size(); ++i) {
      key.words[i] = word.size() > 8 * i ? low_bytes(key.words[i], word.size() - 8 * i) : 0;
    }
  } else {
    std::memcpy(&key, word.data(), word.size());
  }
  reinterpret_cast<unsigned char*>(&key)[kLongestKey] = static_cast<unsigned char>(word.size());
  return key;
}

size_t BpeEncoder::slot_of(const Key& key) {
  uint64_t h = (key.words[0] ^ std::rotl(key.words[2], 32)) * 0x9E3779B97F4A7C15u;
  h ^= (key.words[1] ^ std::rotl(key.words[3], 32)) * 0xC2B2AE3D27D4EB4Fu;
  h ^= h >> 32;
  return h * 0xD6E8FEB86659FD93u >> (64 - kSlotBits);
}

void BpeEncoder::merge(std::string_view word) {
  tokens_.clear();
  if (!model_.whole_words.empty()) {
    if (const auto whole = model_.whole_words.find(word); whole != model_.whole_words.end()) {
      tokens_.push_back(whole->second);
      return;
    }
  }
  for (const char byte : word) tokens_.push_back(model_.byte_tokens[static_cast<unsigned char>(byte)]);
  pairs_.resize(tokens_.size());
  for (size_t i = 0; i + 1 < tokens_.size(); ++i) pairs_[i] = model_.merges.find(tokens_[i], tokens_[i + 1]);
  pairs_.back() = {MergeTable::kNoRank, 0};
  if (tokens_.size() <= kShortWord) {
    merge_short();
  } else {
    merge_long();
  }
}

void BpeEncoder::merge_short() {
  const auto earlier = [](const auto& a, const auto& b) { return a.rank < b.rank; };
  while (true) {
    const auto best = std::min_element(pairs_.begin(), pairs_.end(), earlier);
    if (best->rank == MergeTable::kNoRank) return;
    const auto i = best - pairs_.begin();
    tokens_[i] = best->result;
    tokens_.erase(tokens_.begin() + i + 1);
    pairs_.erase(best);
    if (i > 0) pairs_[i - 1] = model_.merges.find(tokens_[i - 1], tokens_[i]);
    if (pairs_.begin() + i + 1 < pairs_.end()) pairs_[i] = model_.merges.find(tokens_[i], tokens_[i + 1]);
  }
}

void BpeEncoder::merge_long() {
  const auto size = static_cast<uint32_t>(tokens_.size());
  previous_.resize(size);
  next_.resize(size);
  queue_.clear();
  for (uint32_t i = 0; i < size; ++i) {
    previous_[i] = i == 0 ? kNone : i - 1;
    next_[i] = i + 1 == size ? kNone : i + 1;
    if (pairs_[i].rank != MergeTable::kNoRank) queue_.push_back(uint64_t{pairs_[i].rank} << 32 | i);
  }
  std::make_heap(queue_.begin(), queue_.end(), std::greater<>{});
  const auto look_up = [this](uint32_t i) {
    pairs_[i] = next_[i] == kNone ? MergeTable::Merge{MergeTable::kNoRank, 0}
                                  : model_.merges.find(tokens_[i], tokens_[next_[i]]);
    if (pairs_[i].rank == MergeTable::kNoRank) return;
    queue_.push_back(uint64_t{pairs_[i].rank} << 32 | i);
    std::push_heap(queue_.begin(), queue_.end(), std::greater<>{});
  };
  while (!queue_.empty()) {
    const auto rank = static_cast<uint32_t>(queue_.front() >> 32);
    const auto i = static_cast<uint32_t>(queue_.front());
    std::pop_heap(queue_.begin(), queue_.end(), std::greater<>{});
    queue_.pop_back();
    if (pairs_[i].rank != rank) continue;  // one of the two tokens has changed since
    const uint32_t right = next_[i];
    tokens_[i] = pairs_[i].result;
    tokens_[right] = kMerged;
    pairs_[right].rank = MergeTable::kNoRank;
    next_[i] = next_[right];
    if (next_[i] != kNone) previous_[next_[i]] = i;
    if (previous_[i] != kNone) look_up(previous_[i]);
    look_up(i);
  }
  std::erase(tokens_, kMerged);
}

}  // namespace prism::text
