#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace prism::text {

// The number of times each word occurs. Memory grows only with the number of distinct words.
class WordCounts {
 public:
  void add(std::string_view word, int64_t count = 1);
  void add(const WordCounts& other);

  // Drops the rarest words, all words of an equal count together, until `bytes()` is at most `limit`. Returns the
  // number of dropped words. The result does not depend on the order in which words were added.
  int64_t prune(size_t limit);

  size_t size() const { return entries_.size(); }
  size_t bytes() const;  // of memory in use
  std::string_view word(size_t i) const { return {text_.data() + entries_[i].begin, entries_[i].size}; }
  int64_t count(size_t i) const { return entries_[i].count; }
  void clear();

 private:
  struct Entry {
    uint64_t hash;
    size_t begin;  // in text_
    size_t size;
    int64_t count;
  };
  void add(std::string_view word, uint64_t hash, int64_t count);
  void rebuild(size_t slots);

  std::string text_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_;  // entry number plus one; 0 is empty
};

}  // namespace prism::text
