#include "prism/report/text_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace prism::report {

TextTable::TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

void TextTable::row(std::vector<std::string> cells) {
  if (cells.size() != columns_.size()) {
    throw std::invalid_argument(fmt::format("table: expected {} cells, got {}", columns_.size(), cells.size()));
  }
  rows_.push_back(std::move(cells));
}

std::string TextTable::text(bool unicode, int64_t width) const {
  std::vector<int64_t> widths;
  for (const auto& column : columns_) widths.push_back(display_width(column.title));
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::vector<size_t> shown(columns_.size());
  std::iota(shown.begin(), shown.end(), size_t{0});
  const auto total = [&] {
    int64_t sum = 2 * (static_cast<int64_t>(shown.size()) - 1);
    for (const auto i : shown) sum += widths[i];
    return sum;
  };
  while (width > 0 && total() > width) {
    const auto last = std::ranges::max_element(shown, {}, [&](size_t i) { return columns_[i].rank; });
    if (columns_[*last].rank == 0) break;
    shown.erase(last);
  }
  std::string result;
  const auto add_line = [&](const auto& cell) {
    for (const auto i : shown)
      result += (i != shown.front() ? "  " : "") + padded(cell(i), widths[i], columns_[i].align);
    result.erase(result.find_last_not_of(' ') + 1);
    result += '\n';
  };
  add_line([&](size_t i) { return columns_[i].title; });
  add_line([&](size_t i) {
    std::string rule;
    for (int64_t cell = 0; cell < widths[i]; ++cell) rule += unicode ? "─" : "-";
    return rule;
  });
  for (const auto& row : rows_) add_line([&](size_t i) { return row[i]; });
  return result;
}

}  // namespace prism::report
