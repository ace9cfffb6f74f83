#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace prism::report {

// A self-contained page of horizontal bars in groups. Each group has its own scale and starts with its shortest bar.
struct Bar {
  std::string name;
  double value = 0;
  bool marked = false;  // drawn in color; other bars are gray
};
struct BarGroup {
  std::string name, detail;
  std::vector<Bar> bars;
};
struct BarPage {
  std::string title, text;
  std::vector<BarGroup> groups;
};

void write(const BarPage& page, const std::filesystem::path& file);

}  // namespace prism::report
