#pragma once

#include <string>
#include <vector>

#include "prism/report/terminal_text.h"

namespace prism::report {

// Columns for a terminal, aligned by the cells that the text takes:
//
//   optimizer  best lr  held-out loss
//   ─────────  ───────  ─────────────
//   AdamW       0.0025  3.622 ± 0.002
//
//   TextTable table({{"optimizer"}, {"best lr", Align::Right}, {"held-out loss", Align::Right}});
//   table.row({"AdamW", "0.0025", "3.622 ± 0.002"});
class TextTable {
 public:
  struct Column {
    std::string title;
    Align align = Align::Left;
    int rank = 0;  // where the table is too wide, columns of the highest rank are left out first; 0: never
  };

  explicit TextTable(std::vector<Column> columns);

  void row(std::vector<std::string> cells);  // one for each column, or std::invalid_argument

  // Lines that end in a newline and have no trailing spaces, at most `width` cells wide where columns may be left out
  // (0: as wide as it is); `unicode` chooses ─ or - for the rule.
  std::string text(bool unicode = locale_is_utf8(), int64_t width = 0) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace prism::report
