#include "prism/report/text_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>

namespace prism::report {

namespace {

constexpr const char* kNoValues = "no values to plot\n";
constexpr std::array kLetters = {'*', 'o', '+', 'x', '#', '@', '%', '&'};
constexpr std::array kUnicodeLetters = {"●", "○", "▲", "+", "×", "■", "◇", "▽"};
constexpr std::array kColors = {34, 31, 32, 35, 33, 36, 90, 37};  // ANSI foregrounds

// Maps values to [0, 1], from the smallest to the largest value included, linearly or by logarithm.
class Axis {
 public:
  explicit Axis(bool log) : log_(log) {}

  bool usable(double value) const { return std::isfinite(value) && (!log_ || value > 0); }
  void include(double value) {
    if (!usable(value)) return;
    low_ = std::min(low_, value);
    high_ = std::max(high_, value);
  }
  bool empty() const { return low_ > high_; }
  double place(double value) const {
    const double span = map(high_) - map(low_);
    return span > 0 ? (map(value) - map(low_)) / span : 0.5;
  }
  double at(double place) const {
    const double value = map(low_) + place * (map(high_) - map(low_));
    return log_ ? std::exp(value) : value;
  }

 private:
  double map(double value) const { return log_ ? std::log(value) : value; }

  bool log_;
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
};

struct Point {
  int64_t x, y;
};

// A grid of cells, each of dots_x × dots_y dots. A cell remembers the series that drew into it last, its owner.
class Canvas {
 public:
  Canvas(int64_t columns, int64_t rows, int64_t dots_x, int64_t dots_y)
      : columns_(columns),
        rows_(rows),
        dots_x_(dots_x),
        dots_y_(dots_y),
        dots_(columns * rows),
        owner_(columns * rows) {}

  int64_t width() const { return columns_ * dots_x_; }
  int64_t height() const { return rows_ * dots_y_; }

  void dot(int64_t x, int64_t y, size_t owner) {
    const int64_t cell = (y / dots_y_) * columns_ + x / dots_x_;
    dots_[cell] |= kBraille[y % dots_y_][x % dots_x_];
    owner_[cell] = owner;
  }

  void line(Point from, Point to, size_t owner) {
    const int64_t steps = std::max({std::abs(to.x - from.x), std::abs(to.y - from.y), int64_t{1}});
    const auto between = [&](int64_t a, int64_t b, int64_t i) {
      return a + std::llround(static_cast<double>((b - a) * i) / static_cast<double>(steps));
    };
    for (int64_t i = 0; i <= steps; ++i) dot(between(from.x, to.x, i), between(from.y, to.y, i), owner);
  }

  std::optional<size_t> owner(int64_t column, int64_t row) const {
    const int64_t cell = row * columns_ + column;
    return dots_[cell] == 0 ? std::nullopt : std::optional(owner_[cell]);
  }
  // Returns the dots of a cell as the low byte of a braille character.
  uint8_t dots(int64_t column, int64_t row) const { return dots_[row * columns_ + column]; }

 private:
  static constexpr uint8_t kBraille[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

  int64_t columns_, rows_, dots_x_, dots_y_;
  std::vector<uint8_t> dots_;
  std::vector<size_t> owner_;
};

std::string braille(uint8_t dots) {  // U+2800 + dots in UTF-8
  return {'\xe2', static_cast<char>(0xa0 | dots >> 6), static_cast<char>(0x80 | (dots & 0x3f))};
}

std::string number(double value) { return fmt::format("{:.4g}", value); }

struct Frame {
  Axis x, y;
  bool dotted;  // braille, not letters
  Canvas canvas;
};

std::string symbol(size_t series, const TextPlotOptions& options) {
  if (options.unicode) return kUnicodeLetters[series % kUnicodeLetters.size()];
  return std::string(1, kLetters[series % kLetters.size()]);
}

std::string colored(const std::string& text, size_t series, const TextPlotOptions& options) {
  if (!options.color) return text;
  return fmt::format("\x1b[{}m{}\x1b[0m", kColors[series % kColors.size()], text);
}

double x_of(const TextSeries& series, size_t i) { return series.x.empty() ? static_cast<double>(i) : series.x[i]; }

void draw(Frame& frame, const TextSeries& series, size_t index) {
  auto& canvas = frame.canvas;
  Point last{};
  bool joined = false;
  for (size_t i = 0; i < series.y.size(); ++i) {
    const bool usable = frame.x.usable(x_of(series, i)) && frame.y.usable(series.y[i]);
    if (usable) {
      const Point point{std::llround(frame.x.place(x_of(series, i)) * static_cast<double>(canvas.width() - 1)),
                        std::llround((1 - frame.y.place(series.y[i])) * static_cast<double>(canvas.height() - 1))};
      canvas.line(joined ? last : point, point, index);
      last = point;
    }
    joined = usable;
  }
}

std::string cell_text(const Frame& frame, int64_t column, int64_t row, const TextPlotOptions& options) {
  const auto owner = frame.canvas.owner(column, row);
  if (!owner) return " ";
  return colored(frame.dotted ? braille(frame.canvas.dots(column, row)) : symbol(*owner, options), *owner, options);
}

std::string legend(const std::vector<TextSeries>& series, const TextPlotOptions& options, bool dotted) {
  std::string text;
  for (size_t i = 0; i < series.size(); ++i) {
    const std::string mark = dotted ? "━" : symbol(i, options);
    text += (text.empty() ? "" : "   ") + colored(mark, i, options) + " " + series[i].label;
  }
  return text;
}

// Returns the rule of the axis and a line with its lowest value, label and highest value.
std::string x_axis(const Axis& axis, int64_t columns, int64_t margin, const TextPlotOptions& options) {
  std::string rule(static_cast<size_t>(margin), ' ');
  rule += options.unicode ? "└" : "+";
  for (int64_t i = 0; i < columns; ++i) rule += options.unicode ? "─" : "-";
  const auto low = number(axis.at(0));
  const auto high = number(axis.at(1));
  const int64_t space = columns - display_width(low) - display_width(high);
  const auto label = display_width(options.x_label) + 2 <= space ? options.x_label : "";
  const int64_t before = (space - display_width(label)) / 2;
  return rule + "\n" + std::string(static_cast<size_t>(margin + 1), ' ') + low + padded("", before) + label +
         padded("", space - before - display_width(label)) + high + "\n";
}

// Returns the label of each line: numbers beside the first, the middle and the last, empty elsewhere.
std::vector<std::string> y_labels(const Axis& axis, int64_t height) {
  std::vector<std::string> labels(static_cast<size_t>(height));
  for (const int64_t part : {0, 1, 2}) {
    const int64_t row = part * (height - 1) / 2;
    labels[static_cast<size_t>(row)] = number(axis.at(1 - static_cast<double>(row) / static_cast<double>(height - 1)));
  }
  return labels;
}

void check(const std::vector<TextSeries>& series, const TextPlotOptions& options) {
  if (options.width < 24 || options.height < 2) {
    throw std::invalid_argument(
        fmt::format("line_plot: expected at least 24 by 2 cells, got {} by {}", options.width, options.height));
  }
  for (const auto& one : series) {
    if (one.x.empty() || one.x.size() == one.y.size()) continue;
    throw std::invalid_argument(
        fmt::format("line_plot: '{}': expected as many x as y, got {} and {}", one.label, one.x.size(), one.y.size()));
  }
}

}  // namespace

std::string line_plot(const std::vector<TextSeries>& series, const TextPlotOptions& options) {
  check(series, options);
  Axis x(options.log_x);
  Axis y(options.log_y);
  for (const auto& one : series) {
    for (size_t i = 0; i < one.y.size(); ++i) {
      if (!x.usable(x_of(one, i)) || !y.usable(one.y[i])) continue;
      x.include(x_of(one, i));
      y.include(one.y[i]);
    }
  }
  if (x.empty()) return kNoValues;

  const bool dotted = options.unicode && (series.size() == 1 || options.color);
  const auto labels = y_labels(y, options.height);
  int64_t margin = 0;
  for (const auto& label : labels) margin = std::max(margin, display_width(label) + 1);
  const int64_t columns = options.width - margin - 1;
  Frame frame{x, y, dotted, Canvas(columns, options.height, dotted ? 2 : 1, dotted ? 4 : 1)};
  for (size_t i = 0; i < series.size(); ++i) draw(frame, series[i], i);

  std::string text = options.y_label.empty() ? "" : options.y_label + "\n";
  for (int64_t row = 0; row < options.height; ++row) {
    const auto& label = labels[static_cast<size_t>(row)];
    std::string line = padded(label, margin - 1, Align::Right) + " ";
    line += options.unicode ? (label.empty() ? "│" : "┤") : "|";
    for (int64_t column = 0; column < columns; ++column) line += cell_text(frame, column, row, options);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  text += x_axis(x, columns, margin, options);
  if (series.size() > 1) text += padded("", margin + 1) + legend(series, options, dotted) + "\n";
  return text;
}

std::string spark_line(std::span<const double> values, int64_t width, bool unicode) {
  static constexpr std::array kBars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr std::array kAscii = {"_", ".", "-", "=", "+", "*", "#", "@"};
  const auto size = static_cast<int64_t>(values.size());
  const int64_t cells = std::min(width, size);
  std::vector<double> means;
  Axis axis(false);
  for (int64_t cell = 0; cell < cells; ++cell) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = cell * size / cells; i < (cell + 1) * size / cells; ++i) {
      if (!std::isfinite(values[static_cast<size_t>(i)])) continue;
      sum += values[static_cast<size_t>(i)];
      ++count;
    }
    means.push_back(count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN());
    axis.include(means.back());
  }
  std::string text;
  for (const double mean : means) {
    const auto level = std::isfinite(mean) ? std::min<size_t>(7, static_cast<size_t>(axis.place(mean) * 8)) : 0;
    text += !std::isfinite(mean) ? " " : unicode ? kBars[level] : kAscii[level];
  }
  return text;
}

}  // namespace prism::report
