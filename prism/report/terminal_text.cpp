#include "prism/report/terminal_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace prism::report {

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == 0) continue;
    std::string text(value);
    std::erase(text, '-');
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text.find("utf8") != std::string::npos;
  }
  return false;
}

int64_t display_width(std::string_view text) {
  int64_t width = 0;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t code = 0;
    const auto read = utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(text.size() - at), &code);
    width += read > 0 ? utf8proc_charwidth(code) : 1;
    at += static_cast<size_t>(std::max<utf8proc_ssize_t>(read, 1));
  }
  return width;
}

std::string padded(std::string_view text, int64_t width, Align align) {
  const std::string space(static_cast<size_t>(std::max<int64_t>(0, width - display_width(text))), ' ');
  return align == Align::Left ? std::string(text) + space : space + std::string(text);
}

}  // namespace prism::report
