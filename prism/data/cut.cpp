#include "prism/data/cut.h"

namespace prism::data {

namespace {

bool is_visible(char c) { return c > ' ' && c < '\x7f'; }

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

size_t cut_position(std::string_view text, size_t limit) {
  for (size_t cut = limit; cut > limit / 2; --cut) {
    if (text[cut - 1] == '\n' && is_visible(text[cut])) return cut;
  }
  for (size_t cut = limit; cut > limit / 2; --cut) {
    if (text[cut] == ' ' && is_visible(text[cut - 1]) && cut + 1 < text.size() && is_visible(text[cut + 1])) return cut;
  }
  size_t cut = limit;
  while (cut > limit / 2 + 1 && limit - cut < 3 && is_continuation(text[cut])) --cut;
  return cut;
}

}  // namespace prism::data
