#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace prism::report {

// Whether the locale (LC_ALL, LC_CTYPE, LANG: the first that is set) writes UTF-8; otherwise plots and tables should be
// asked for in ASCII.
bool locale_is_utf8();

// Cells of a terminal that the UTF-8 text takes: none for combining characters, two for wide ones.
int64_t display_width(std::string_view text);

enum class Align { Left, Right };

// The text with spaces to this width; a longer text stays as it is.
std::string padded(std::string_view text, int64_t width, Align align = Align::Left);

}  // namespace prism::report
