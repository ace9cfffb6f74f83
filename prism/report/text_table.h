#pragma once

#include <string>
#include <vector>

#include "prism/report/terminal_text.h"

namespace prism::report {

// A table for a terminal, with columns aligned by display width:
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
    int rank = 0;  // in a table that is too wide, the highest rank is left out first; 0: never
  };

  explicit TextTable(std::vector<Column> columns);

  void row(std::vector<std::string> cells);  // throws std::invalid_argument unless there is one per column

  // Returns lines that end in a newline and have no trailing spaces. Leaves out columns until the table is at most
  // `width` cells wide (0: no limit) or only rank 0 remains. The rule is made of ─, or of - without `unicode`.
  std::string text(bool unicode = locale_is_utf8(), int64_t width = 0) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace prism::report
