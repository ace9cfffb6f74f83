#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace prism::text {

// Returns `bytes` as valid UTF-8, with each broken part replaced by U+FFFD exactly as in Python's
// bytes.decode("utf-8", "replace"): a lead byte with its valid continuation bytes is one part, any other stray byte is
// one by itself. Returns `bytes` itself if nothing is broken, otherwise a view of `storage`.
std::string_view repair_utf8(std::string_view bytes, std::string& storage);

// Repairs text that comes in pieces which may end within a character.
class Utf8Stream {
 public:
  std::string take(std::string_view bytes);  // the characters that are complete now
  std::string finish();                      // the bytes that are left

 private:
  std::string open_;  // the beginning of a character
};

void append_utf8(std::string& text, char32_t code_point);

// Returns the code point at `p` and moves `p` past it. The text must be valid and must not end at `p`.
inline char32_t next_code_point(const char*& p) {
  const auto byte = [p](int i) { return static_cast<unsigned char>(p[i]); };
  const char32_t lead = byte(0);
  if (lead < 0x80) {
    p += 1;
    return lead;
  }
  const auto tail = [&](int i) { return static_cast<char32_t>(byte(i) & 0x3F); };
  if (lead < 0xE0) {
    const char32_t c = (lead & 0x1F) << 6 | tail(1);
    p += 2;
    return c;
  }
  if (lead < 0xF0) {
    const char32_t c = (lead & 0x0F) << 12 | tail(1) << 6 | tail(2);
    p += 3;
    return c;
  }
  const char32_t c = (lead & 0x07) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3);
  p += 4;
  return c;
}

// The start of the character that ends before `p`. The text must be valid and begin before `p`.
inline const char* previous_character(const char* p) {
  do {
    --p;
  } while ((static_cast<unsigned char>(*p) & 0xC0) == 0x80);
  return p;
}

// The number of ASCII bytes from `p` on.
size_t ascii_prefix(const char* p, const char* end);

}  // namespace prism::text
