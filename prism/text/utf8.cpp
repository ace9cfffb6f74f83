#include "prism/text/utf8.h"

#include <bit>
#include <cstdint>
#include <cstring>

namespace prism::text {

namespace {

struct Sequence {
  size_t length;  // of the character, or of the broken part
  bool valid;
};

// Returns false if the second byte makes the sequence overlong, a surrogate or larger than U+10FFFF.
bool may_be_second(unsigned char lead, unsigned char second) {
  switch (lead) {
    case 0xE0:
      return second >= 0xA0 && second <= 0xBF;
    case 0xED:
      return second >= 0x80 && second <= 0x9F;
    case 0xF0:
      return second >= 0x90 && second <= 0xBF;
    case 0xF4:
      return second >= 0x80 && second <= 0x8F;
    default:
      return second >= 0x80 && second <= 0xBF;
  }
}

Sequence sequence_at(const char* p, const char* end) {
  const auto lead = static_cast<unsigned char>(*p);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const size_t expected = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const auto available = static_cast<size_t>(end - p);
  for (size_t i = 1; i < expected; ++i) {
    if (i == available) return {i, false};
    const auto byte = static_cast<unsigned char>(p[i]);
    if (i == 1 ? !may_be_second(lead, byte) : (byte & 0xC0) != 0x80) return {i, false};
  }
  return {expected, true};
}

// The first broken byte, or `end`.
const char* valid_until(const char* p, const char* end) {
  while (p < end) {
    p += ascii_prefix(p, end);
    if (p == end) break;
    const Sequence sequence = sequence_at(p, end);
    if (!sequence.valid) break;
    p += sequence.length;
  }
  return p;
}

// The number of bytes at the end that begin a character which further bytes may complete.
size_t open_bytes(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) return 0;
    if (byte >= 0xC0) return static_cast<size_t>(std::countl_one(byte)) > back ? back : 0;
  }
  return 0;
}

std::string repaired(std::string_view text) {
  std::string storage;
  return std::string(repair_utf8(text, storage));
}

}  // namespace

size_t ascii_prefix(const char* p, const char* end) {
  const char* q = p;
  for (; end - q >= 16; q += 16) {
    uint64_t words[2];
    std::memcpy(words, q, sizeof words);
    if (((words[0] | words[1]) & 0x8080808080808080u) != 0) break;
  }
  while (q < end && static_cast<signed char>(*q) >= 0) ++q;
  return static_cast<size_t>(q - p);
}

std::string_view repair_utf8(std::string_view bytes, std::string& storage) {
  const char* end = bytes.data() + bytes.size();
  const char* p = bytes.data();
  const char* broken = valid_until(p, end);
  if (broken == end) return bytes;
  storage.clear();
  storage.reserve(bytes.size() + bytes.size() / 8 + 16);
  while (broken < end) {
    storage.append(p, broken);
    storage += "\xEF\xBF\xBD";
    p = broken + sequence_at(broken, end).length;
    broken = valid_until(p, end);
  }
  storage.append(p, end);
  return storage;
}

void append_utf8(std::string& text, char32_t c) {
  const auto tail = [c](int shift) { return static_cast<char>(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += {static_cast<char>(0xC0 | c >> 6), tail(0)};
  } else if (c < 0x10000) {
    text += {static_cast<char>(0xE0 | c >> 12), tail(6), tail(0)};
  } else {
    text += {static_cast<char>(0xF0 | c >> 18), tail(12), tail(6), tail(0)};
  }
}

std::string Utf8Stream::take(std::string_view bytes) {
  open_ += bytes;
  const size_t whole = open_.size() - open_bytes(open_);
  const std::string text = repaired(std::string_view(open_).substr(0, whole));
  open_.erase(0, whole);
  return text;
}

std::string Utf8Stream::finish() {
  const std::string text = repaired(open_);
  open_.clear();
  return text;
}

}  // namespace prism::text
