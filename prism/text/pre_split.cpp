#include "prism/text/pre_split.h"

#include "prism/text/unicode.h"
#include "prism/text/utf8.h"

namespace prism::text {

namespace {

constexpr unsigned kAny = kLetter | kNumber | kSpace;

bool is_line_end(char c) { return c == '\r' || c == '\n'; }

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 'a' - 'A') : c; }

// The length of `s|t|re|ve|m|ll|d` at the start of `rest`, or 0. If case is ignored, ſ (U+017F) counts as an s.
size_t contraction(std::string_view rest, bool ignore_case) {
  const auto letter = [&](size_t i) { return i < rest.size() ? (ignore_case ? lower(rest[i]) : rest[i]) : '\0'; };
  switch (letter(0)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 1;
    case 'r':
    case 'v':
      return letter(1) == 'e' ? 2 : 0;
    case 'l':
      return letter(1) == 'l' ? 2 : 0;
    default:
      return ignore_case && rest.starts_with("\xC5\xBF") ? 2 : 0;
  }
}

}  // namespace

std::string_view pattern(PreSplit rule) {
  if (rule == PreSplit::Qwen2) {
    return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  }
  return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
}

WordScanner::WordScanner(PreSplit rule, std::string_view text)
    : rule_(rule), properties_(code_point_properties()), p_(text.data()), end_(text.data() + text.size()) {}

inline WordScanner::Character WordScanner::at(const char* p) const {
  if (static_cast<signed char>(*p) >= 0) return {p + 1, properties_[static_cast<unsigned char>(*p)]};
  const char32_t c = next_code_point(p);
  return {p, properties_[c]};
}

inline const char* WordScanner::skip(const char* p, unsigned wanted) const {
  while (p < end_) {
    const auto [next, properties] = at(p);
    if (!(properties & wanted)) break;
    p = next;
  }
  return p;
}

inline const char* WordScanner::skip_others(const char* p) const {
  while (p < end_) {
    const auto [next, properties] = at(p);
    if (properties & kAny) break;
    p = next;
  }
  return p;
}

// The end of the word that begins with a blank. With `stop_after_line_end`, tries \s*[\r\n]+ first, which ends after
// the last line end of the run. Then \s+(?!\S), the run without its last character unless the text ends there, and \s+,
// a single blank.
const char* WordScanner::blanks(bool stop_after_line_end) const {
  const char* after_line_end = nullptr;
  const char* last = p_;
  const char* p = p_;
  while (p < end_) {
    const auto [next, properties] = at(p);
    if (!(properties & kSpace)) break;
    if (is_line_end(*p)) after_line_end = next;
    last = p;
    p = next;
  }
  if (stop_after_line_end && after_line_end != nullptr) return after_line_end;
  return p == end_ || last == p_ ? p : last;
}

const char* WordScanner::qwen2_word() const {
  const auto [next, properties] = at(p_);
  if (properties & kLetter) return skip(next, kLetter);
  if (properties & kNumber) return next;
  if (*p_ == '\'') {
    if (const size_t length = contraction({next, static_cast<size_t>(end_ - next)}, true)) return next + length;
  }
  if (next < end_ && !is_line_end(*p_)) {
    const auto [after, follower] = at(next);
    if (follower & kLetter) return skip(after, kLetter);
  }
  const char* others = *p_ == ' ' ? next : p_;
  const char* stop = skip_others(others);
  if (stop == others) return blanks(true);
  while (stop < end_ && is_line_end(*stop)) ++stop;
  return stop;
}

const char* WordScanner::gpt2_word() const {
  if (*p_ == '\'') {
    if (const size_t length = contraction({p_ + 1, static_cast<size_t>(end_ - p_ - 1)}, false)) return p_ + 1 + length;
  }
  const char* begin = *p_ == ' ' && p_ + 1 < end_ ? p_ + 1 : p_;
  const unsigned properties = at(begin).properties;
  if (properties & kLetter) return skip(begin, kLetter);
  if (properties & kNumber) return skip(begin, kNumber);
  if (!(properties & kAny)) return skip_others(begin);
  return blanks(false);
}

}  // namespace prism::text
