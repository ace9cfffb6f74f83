#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "prism/report/terminal_text.h"

namespace prism::report {

// Small plots for a terminal: lines of text that end in a newline, at most `width` cells wide. Values that are not
// finite (on a log axis: not above 0) are left out; a plot without any value is one line that says so.

struct TextSeries {
  std::string label;
  std::vector<double> x, y;  // of equal length; x may be empty and is then 0, 1, 2 …
};

struct TextPlotOptions {
  int64_t width = 72;   // at least 24, with the labels of the axes
  int64_t height = 12;  // lines between the axes, at least 2
  bool log_x = false, log_y = false;
  std::string x_label = {}, y_label = {};
  bool unicode = locale_is_utf8();
  bool color = false;  // ANSI colors, one per series
};

// Lines through the points, with axes and, for several series, a legend. A single series, or several in color, is
// drawn in braille dots, eight to a cell; several without color, or any in ASCII, with one letter per series.
std::string line_plot(const std::vector<TextSeries>& series, const TextPlotOptions& options = {});

// One cell per value group, ▁ to █ (in ASCII: _ . - = + * # @), from the smallest value to the largest; for a column of
// a table.
std::string spark_line(std::span<const double> values, int64_t width, bool unicode = locale_is_utf8());

}  // namespace prism::report
