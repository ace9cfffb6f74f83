#include "prism/cli/text_stream.h"

#include <bit>

#include "prism/text/utf8.h"

namespace prism::cli {
namespace {

// How many bytes at the end are the beginning of a character that may still become one.
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
  return std::string(text::repair_utf8(text, storage));
}

}  // namespace

std::string TextStream::take(std::string_view bytes) {
  open_ += bytes;
  const size_t whole = open_.size() - open_bytes(open_);
  const std::string text = repaired(std::string_view(open_).substr(0, whole));
  open_.erase(0, whole);
  return text;
}

std::string TextStream::finish() {
  const std::string text = repaired(open_);
  open_.clear();
  return text;
}

}  // namespace prism::cli
