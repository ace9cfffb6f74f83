#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace prism::cli {

// What the reader of a stream can show.
struct Terminal {
  bool live = false;    // lines can be written over: a terminal that is not "dumb"
  bool colour = false;  // a live terminal, and NO_COLOR is unset or empty
  int64_t width = 80;   // columns, as they are now
};
Terminal terminal_of(std::FILE* stream);

// Writes the text and flushes it. A stream that cannot be written to (closed, full, a pipe that ended) is passed over:
// what is said is worth less than the work it is about.
void say(std::FILE* stream, std::string_view text);

enum class Colour { kRed, kGreen, kYellow, kBold, kFaint };
std::string coloured(std::string_view text, Colour colour, const Terminal& terminal);

// The first `columns` characters of UTF-8 text, the last an ellipsis where something is left out.
std::string fitted(std::string_view text, int64_t columns);

}  // namespace prism::cli
