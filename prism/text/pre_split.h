#pragma once

#include <string_view>

namespace prism::text {

// The rule that splits text into words before BPE; no merge crosses a word boundary. The first matching alternative
// wins:
//   kQwen2  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//   kGpt2   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// Both match at every position of any text, so the concatenated words are the text.
enum class PreSplit { Qwen2, Gpt2 };

std::string_view pattern(PreSplit rule);

// A hand-written scanner for these patterns, with the classes of code_point_properties(). Linear in the text.
//   WordScanner scanner(PreSplit::Qwen2, text);
//   for (std::string_view word; scanner.next(word);) …
class WordScanner {
 public:
  WordScanner(PreSplit rule, std::string_view text);  // `text` must be valid UTF-8

  bool next(std::string_view& word) {
    if (p_ == end_) return false;
    const char* stop = rule_ == PreSplit::Qwen2 ? qwen2_word() : gpt2_word();
    word = std::string_view(p_, static_cast<size_t>(stop - p_));
    p_ = stop;
    return true;
  }

 private:
  struct Character {
    const char* next;
    unsigned properties;
  };
  Character at(const char* p) const;
  const char* skip(const char* p, unsigned wanted) const;  // skips characters with one of the properties
  const char* skip_others(const char* p) const;            // skips characters that are not letters, numbers or spaces
  const char* qwen2_word() const;
  const char* gpt2_word() const;
  const char* blanks(bool stop_after_line_end) const;

  PreSplit rule_;
  const unsigned char* properties_;
  const char* p_;
  const char* end_;
};

}  // namespace prism::text
