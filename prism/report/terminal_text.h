#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace prism::report {

// Returns true if the locale (the first of LC_ALL, LC_CTYPE and LANG that is set) uses UTF-8. If it does not, plots and
// tables should be ASCII.
bool locale_is_utf8();

// Returns the number of terminal cells that UTF-8 text takes: none for combining characters, two for wide ones.
int64_t display_width(std::string_view text);

enum class Align { Left, Right };

// Returns the text padded with spaces to `width` cells. Longer text is returned unchanged.
std::string padded(std::string_view text, int64_t width, Align align = Align::Left);

}  // namespace prism::report
