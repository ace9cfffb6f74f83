#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "prism/report/terminal_text.h"

namespace prism::report {

// Small plots for a terminal: lines of text that end in a newline, at most `width` cells wide. Values that are not
// finite are skipped, and on a log axis those ≤ 0. A plot without values is one line that says so.

struct TextSeries {
  std::string label;
  std::vector<double> x, y;  // of equal length; an empty x means 0, 1, 2 …
};

struct TextPlotOptions {
  int64_t width = 72;   // including the labels of the axes; at least 24
  int64_t height = 12;  // lines above the x axis; at least 2
  bool log_x = false, log_y = false;
  std::string x_label = {}, y_label = {};
  bool unicode = locale_is_utf8();
  bool color = false;  // ANSI colors, one per series
};

// Draws lines through the points, with axes and, for several series, a legend. Uses braille dots, eight to a cell, for
// a single series or for several in color; otherwise, and always in ASCII, one symbol per series.
std::string line_plot(const std::vector<TextSeries>& series, const TextPlotOptions& options = {});

// Returns a curve in one line for a table: `width` cells or fewer, each the mean of a group of neighboring values, from
// ▁ (the smallest) to █ (the largest), in ASCII _ . - = + * # @.
std::string spark_line(std::span<const double> values, int64_t width, bool unicode = locale_is_utf8());

}  // namespace prism::report
