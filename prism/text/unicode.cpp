#include "prism/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "prism/text/utf8.h"

namespace prism::text {

namespace {

struct CodePointRange {
  char32_t first, last;
};

#include "prism/text/unicode_tables.inc"

constexpr size_t kCodePoints = 0x110000;

std::unique_ptr<uint8_t[]> expand_ranges() {
  auto properties = std::make_unique<uint8_t[]>(kCodePoints);
  const auto mark = [&](std::span<const CodePointRange> ranges, uint8_t property) {
    for (const auto [first, last] : ranges) {
      for (char32_t c = first; c <= last; ++c) properties[c] |= property;
    }
  };
  mark(kLetterRanges, kLetter);
  mark(kNumberRanges, kNumber);
  mark(kSpaceRanges, kSpace);
  mark(kWordRanges, kWord);
  mark(kUnstableRanges, kUnstable);
  mark(kActiveRanges, kActive);
  return properties;
}

int combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

// Sorts the marks between two starters by class. utf8proc's own sort takes quadratic time on long runs.
void order_marks(std::vector<utf8proc_int32_t>& code_points) {
  for (auto begin = code_points.begin(); begin != code_points.end();) {
    if (combining_class(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, code_points.end(), [](auto c) { return combining_class(c) == 0; });
    std::stable_sort(begin, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

// Appends the composed form of a stretch that holds only characters of Unicode 9, for which utf8proc's newer tables
// agree.
void append_composed(std::string_view stretch, std::vector<utf8proc_int32_t>& code_points, std::string& out) {
  code_points.clear();
  for (const char *p = stretch.data(), *end = p + stretch.size(); p < end;) {
    utf8proc_int32_t parts[8];
    int boundary = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(next_code_point(p)), parts,
                                               std::size(parts), UTF8PROC_DECOMPOSE, &boundary);
    if (count < 0 || static_cast<size_t>(count) > std::size(parts)) {
      throw std::runtime_error("nfc: utf8proc could not decompose a character");
    }
    code_points.insert(code_points.end(), parts, parts + count);
  }
  order_marks(code_points);
  const auto size = utf8proc_normalize_utf32(code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()),
                                             static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  if (size < 0) throw std::runtime_error("nfc: utf8proc could not compose a text");
  for (utf8proc_ssize_t i = 0; i < size; ++i) append_utf8(out, static_cast<char32_t>(code_points[i]));
}

// The first unstable character from `p` on, or `end`.
const char* find_unstable(const uint8_t* properties, const char* p, const char* end) {
  while (p < end) {
    p += ascii_prefix(p, end);
    if (p == end) break;
    const char* character = p;
    if (properties[next_code_point(p)] & kUnstable) return character;
  }
  return end;
}

const char* skip_unstable(const uint8_t* properties, const char* p, const char* end) {
  while (p < end) {
    const char* next = p;
    if (!(properties[next_code_point(next)] & kUnstable)) break;
    p = next;
  }
  return p;
}

}  // namespace

const uint8_t* code_point_properties() {
  static const auto properties = expand_ranges();
  return properties.get();
}

// Nothing composes or moves across the start of a stable character. So each run of unstable characters is composed by
// itself, together with the character before it if that can take part.
std::string_view nfc(std::string_view text, std::string& storage) {
  const uint8_t* properties = code_point_properties();
  const char* end = text.data() + text.size();
  const char* unstable = find_unstable(properties, text.data(), end);
  if (unstable == end) return text;
  storage.clear();
  storage.reserve(text.size());
  std::vector<utf8proc_int32_t> code_points;
  const char* copied = text.data();
  while (unstable < end) {
    const char* begin = unstable;
    if (begin > copied) {
      const char* before = previous_character(begin);
      const char* p = before;
      if (properties[next_code_point(p)] & kActive) begin = before;
    }
    storage.append(copied, begin);
    copied = skip_unstable(properties, unstable, end);
    append_composed({begin, copied}, code_points, storage);
    unstable = find_unstable(properties, copied, end);
  }
  storage.append(copied, end);
  return storage;
}

}  // namespace prism::text
