#pragma once

#include <string_view>

namespace prism::io {

// A file that is embedded in the program at build time (cmake/PrismEmbed.cmake).
struct EmbeddedFile {
  std::string_view name;
  std::string_view bytes;
};

}  // namespace prism::io
