#pragma once

#include <string>
#include <string_view>

namespace prism::cli {

// Text that comes in pieces which may end within a character. Bytes that make no character become U+FFFD.
class TextStream {
 public:
  std::string take(std::string_view bytes);  // the characters that are complete now
  std::string finish();                      // what is left

 private:
  std::string open_;  // the beginning of a character
};

}  // namespace prism::cli
