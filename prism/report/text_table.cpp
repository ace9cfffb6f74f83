#include "prism/report/text_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace prism::report {

TextTable::TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

void TextTable::row(std::vector<std::string> cells) {
  if (cells.size() != columns_.size()) {
    throw std::invalid_argument(fmt::format("table: expected {} cells, got {}", columns_.size(), cells.size()));
  }
  rows_.push_back(std::move(cells));
}

std::string TextTable::text(bool unicode) const {
  std::vector<int64_t> widths;
  for (const auto& column : columns_) widths.push_back(display_width(column.title));
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::string result;
  const auto add_line = [&](const auto& cell) {
    for (size_t i = 0; i < columns_.size(); ++i) {
      result += (i > 0 ? "  " : "") + padded(cell(i), widths[i], columns_[i].align);
    }
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
