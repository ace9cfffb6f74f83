#include "prism/data/cut.h"

namespace prism::data {

namespace {

bool is_visible(char c) { return c > ' ' && c < '\x7f'; }

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

size_t cut_position(std::string_view text, size_t limit) {
  const auto last = [&](auto&& fits) {
    for (size_t cut = limit; cut > limit / 2; --cut) {
      if (fits(cut)) return cut;
    }
    return size_t{0};
  };
  const auto after_line = [&](size_t cut) { return text[cut - 1] == '\n' && is_visible(text[cut]); };
  const auto after_full_line = [&](size_t cut) { return after_line(cut) && cut > 1 && is_visible(text[cut - 2]); };
  const auto before_word = [&](size_t cut) {
    return text[cut] == ' ' && is_visible(text[cut - 1]) && cut + 1 < text.size() && is_visible(text[cut + 1]);
  };
  if (const size_t cut = last(after_full_line)) return cut;
  if (const size_t cut = last(before_word)) return cut;
  if (const size_t cut = last(after_line)) return cut;
  size_t cut = limit;
  while (cut > limit / 2 + 1 && limit - cut < 3 && is_continuation(text[cut])) --cut;
  return cut;
}

}  // namespace prism::data
