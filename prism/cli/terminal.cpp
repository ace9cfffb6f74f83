#include "prism/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace prism::cli {

namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

}  // namespace

Terminal terminal_of(std::FILE* stream) {
  Terminal terminal;
  const int fd = fileno(stream);
  terminal.live = isatty(fd) == 1 && variable("TERM") != "dumb";
  terminal.colour = terminal.live && variable("NO_COLOR").empty();
  if (winsize size{}; ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) terminal.width = size.ws_col;
  return terminal;
}

void say(std::FILE* stream, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
  std::clearerr(stream);
}

std::string coloured(std::string_view text, Colour colour, const Terminal& terminal) {
  if (!terminal.colour) return std::string(text);
  const char* code = "";
  switch (colour) {
    case Colour::kRed:
      code = "31";
      break;
    case Colour::kGreen:
      code = "32";
      break;
    case Colour::kYellow:
      code = "33";
      break;
    case Colour::kBold:
      code = "1";
      break;
    case Colour::kFaint:
      code = "2";
      break;
  }
  return "\x1b[" + std::string(code) + "m" + std::string(text) + "\x1b[0m";
}

std::string fitted(std::string_view text, int64_t columns) {
  const auto characters = std::ranges::count_if(text, begins_character);
  if (characters <= columns) return std::string(text);
  int64_t left = std::max<int64_t>(columns - 1, 0);
  size_t end = 0;
  while (end < text.size() && (left > 0 || !begins_character(text[end]))) {
    if (begins_character(text[end])) --left;
    ++end;
  }
  return std::string(text.substr(0, end)) + (columns > 0 ? "…" : "");
}

}  // namespace prism::cli
