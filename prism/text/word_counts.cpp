#include "prism/text/word_counts.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <stdexcept>

namespace prism::text {

namespace {

constexpr size_t kFirstSlots = size_t{1} << 12;

}  // namespace

void WordCounts::add(std::string_view word, int64_t count) { add(word, std::hash<std::string_view>{}(word), count); }

void WordCounts::add(const WordCounts& other) {
  for (size_t i = 0; i < other.size(); ++i) add(other.word(i), other.entries_[i].hash, other.entries_[i].count);
}

void WordCounts::add(std::string_view word, uint64_t hash, int64_t count) {
  if (2 * entries_.size() >= slots_.size()) rebuild(std::max(kFirstSlots, 2 * slots_.size()));
  const size_t mask = slots_.size() - 1;
  size_t i = hash & mask;
  for (; slots_[i] != 0; i = (i + 1) & mask) {
    Entry& entry = entries_[slots_[i] - 1];
    if (entry.hash == hash && word == std::string_view(text_.data() + entry.begin, entry.size)) {
      entry.count += count;
      return;
    }
  }
  if (entries_.size() >= std::numeric_limits<uint32_t>::max() - 1) throw std::runtime_error("too many distinct words");
  entries_.push_back({hash, text_.size(), word.size(), count});
  text_ += word;
  slots_[i] = static_cast<uint32_t>(entries_.size());
}

void WordCounts::rebuild(size_t slots) {
  slots_.assign(slots, 0);
  for (size_t entry = 0; entry < entries_.size(); ++entry) {
    size_t i = entries_[entry].hash & (slots - 1);
    while (slots_[i] != 0) i = (i + 1) & (slots - 1);
    slots_[i] = static_cast<uint32_t>(entry + 1);
  }
}

size_t WordCounts::bytes() const {
  return text_.size() + entries_.size() * sizeof(Entry) + slots_.size() * sizeof(uint32_t);
}

int64_t WordCounts::prune(size_t limit) {
  const size_t before = entries_.size();
  while (bytes() > limit && !entries_.empty()) {
    const auto least = std::min_element(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
                         return a.count < b.count;
                       })->count;
    std::string kept_text;
    std::vector<Entry> kept;
    for (Entry entry : entries_) {
      if (entry.count == least) continue;
      const std::string_view word(text_.data() + entry.begin, entry.size);
      entry.begin = kept_text.size();
      kept_text += word;
      kept.push_back(entry);
    }
    text_ = std::move(kept_text);
    entries_ = std::move(kept);
    size_t slots = kFirstSlots;
    while (slots < 2 * entries_.size() + 2) slots *= 2;
    rebuild(slots);
  }
  return static_cast<int64_t>(before - entries_.size());
}

void WordCounts::clear() {
  text_.clear();
  entries_.clear();
  std::fill(slots_.begin(), slots_.end(), 0);
}

}  // namespace prism::text
