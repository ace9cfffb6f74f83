#pragma once

#include <span>
#include <string_view>

namespace prism::report {

// The files of prism/report/assets, in the order in which CMakeLists.txt lists them, as they were at build time.
struct Asset {
  std::string_view name;
  std::string_view bytes;
};

std::span<const Asset> assets();

}  // namespace prism::report
