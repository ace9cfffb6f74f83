#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace prism::report {

// A self-contained page of horizontal bars in groups, each group with a scale of its own and its shortest bar first.
struct Bar {
  std::string name;
  double value = 0;
  bool marked = false;  // in color
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
