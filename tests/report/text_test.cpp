#include <cmath>
#include <cstdlib>
#include <limits>
#include <sstream>

#include "prism/report/text_plot.h"
#include "prism/report/text_table.h"
#include "tests/io/temporary_folder.h"

namespace prism::report {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(LinePlot, DrawsARisingLineInAscii) {
  TextPlotOptions options{.width = 24, .height = 3, .unicode = false};
  options.x_label = "step";
  options.y_label = "loss";
  const auto text = line_plot({{"a", {1, 2, 3}, {10, 20, 30}}}, options);
  EXPECT_EQ(text,
            "loss\n"
            "30 |               *****\n"
            "20 |     **********\n"
            "10 |*****\n"
            "   +--------------------\n"
            "    1       step       3\n");
}

TEST(LinePlot, DrawsAFallingLineInBrailleFromCornerToCorner) {
  const auto lines = lines_of(line_plot({{"", {0, 1}, {1, 0}}}, {.width = 24, .height = 2, .unicode = true}));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], "1 ┤⠉⠑⠒⠒⠢⠤⠤⢄⣀⣀⡀");
  EXPECT_EQ(lines[1], "0 ┤          ⠈⠉⠉⠑⠒⠒⠢⠤⠤⢄⣀");
  EXPECT_EQ(lines[2], "  └─────────────────────");
  EXPECT_EQ(lines[3], "   0                   1");
}

TEST(LinePlot, KeepsWithinItsWidthAndNamesItsSeries) {
  std::vector<TextSeries> series(3);
  for (int s = 0; s < 3; ++s) {
    series[s].label = "名" + std::to_string(s);
    for (int i = 0; i < 500; ++i) series[s].y.push_back(std::sin(0.03 * i + s) * 1e-7);
  }
  for (const bool unicode : {false, true}) {
    const auto lines = lines_of(line_plot(series, {.width = 60, .height = 10, .unicode = unicode}));
    ASSERT_EQ(lines.size(), 13u);
    for (const auto& line : lines) EXPECT_LE(display_width(line), 60) << line;
    for (const auto& one : series) EXPECT_TRUE(io::contains(lines.back(), one.label));
    EXPECT_TRUE(io::contains(lines[0], unicode ? "●" : "*"));
  }
}

TEST(LinePlot, MakesEqualRatiosEqualLengthsOnALogAxis) {
  const auto lines = lines_of(line_plot({{"", {1, 10, 100}, {1, 10, 100}}},
                                        {.width = 30, .height = 5, .log_x = true, .log_y = true, .unicode = false}));
  EXPECT_EQ(lines[0].substr(0, 5), "100 |");
  EXPECT_EQ(lines[2].substr(0, 5), " 10 |");
  EXPECT_EQ(lines[4].substr(0, 5), "  1 |");
  EXPECT_NE(lines[2].find('*', 14), std::string::npos);  // the middle point lies in the middle
}

TEST(LinePlot, LeavesOutWhatCannotBeDrawnAndDoesNotBridgeIt) {
  const auto lines =
      lines_of(line_plot({{"", {0, 1, 2, 3, 4}, {1, 1, kNan, 1, 1}}}, {.width = 24, .height = 2, .unicode = false}));
  EXPECT_EQ(lines[1], "1 |******         ******");
  EXPECT_EQ(line_plot({{"", {}, {kNan}}}), "no values to plot\n");
  EXPECT_EQ(line_plot({}), "no values to plot\n");
  EXPECT_EQ(line_plot({{"", {}, {-1, 0}}}, {.log_y = true}), "no values to plot\n");
}

TEST(LinePlot, ColorsItsSeriesOnRequest) {
  const std::vector<TextSeries> two = {{"a", {}, {0, 1}}, {"b", {}, {1, 0}}};
  EXPECT_TRUE(io::contains(line_plot(two, {.unicode = true, .color = true}), "\x1b[34m━\x1b[0m a"));
  EXPECT_EQ(line_plot(two, {.unicode = true}).find('\x1b'), std::string::npos);
}

TEST(LinePlot, RefusesWhatDoesNotFit) {
  EXPECT_THROW(line_plot({}, {.width = 10}), std::invalid_argument);
  EXPECT_THROW(line_plot({{"", {1}, {1, 2}}}), std::invalid_argument);
}

TEST(SparkLine, GoesFromTheSmallestToTheLargest) {
  EXPECT_EQ(spark_line(std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7}, 8, true), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(spark_line(std::vector<double>{0, 0, 7, 7}, 2, false), "_@");
  EXPECT_EQ(spark_line(std::vector<double>{1, kNan, 2}, 8, false), "_ @");
  EXPECT_EQ(spark_line({}, 8, false), "");
}

TEST(TextTable, AlignsByTheCellsThatTextTakes) {
  TextTable table({{"name"}, {"lr", Align::Right}});
  table.row({"名前", "0.02"});
  table.row({"e\u0301", "1"});
  EXPECT_EQ(table.text(false),
            "name    lr\n"
            "----  ----\n"
            "名前  0.02\n"
            "e\u0301        1\n");
  EXPECT_TRUE(io::contains(table.text(true), "────  ────\n"));
  EXPECT_THROW(table.row({"one"}), std::invalid_argument);
}

TEST(TextTable, LeavesOutTheLastColumnsWhereItIsTooWide) {
  TextTable table({{"name"}, {"loss", Align::Right, 2}, {"rate", Align::Right}, {"time", Align::Right, 1}});
  table.row({"muon", "3.62", "0.02", "4.25"});
  EXPECT_EQ(table.text(false, 22), table.text(false)) << "as wide as it is";
  EXPECT_EQ(table.text(false, 21),
            "name  rate  time\n"
            "----  ----  ----\n"
            "muon  0.02  4.25\n");
  EXPECT_EQ(table.text(false, 1),
            "name  rate\n"
            "----  ----\n"
            "muon  0.02\n")
      << "what is needed stays";
}

TEST(Locale, IsReadInTheOrderOfPosix) {
  const auto with = [](const char* all, const char* type, const char* lang) {
    all != nullptr ? setenv("LC_ALL", all, 1) : unsetenv("LC_ALL");
    type != nullptr ? setenv("LC_CTYPE", type, 1) : unsetenv("LC_CTYPE");
    lang != nullptr ? setenv("LANG", lang, 1) : unsetenv("LANG");
    return locale_is_utf8();
  };
  EXPECT_TRUE(with(nullptr, nullptr, "de_DE.UTF-8"));
  EXPECT_TRUE(with("", "C.utf8", "C"));
  EXPECT_TRUE(with(nullptr, nullptr, "de_DE.utf8@euro"));
  EXPECT_FALSE(with("C", "C.utf8", "en_US.UTF-8"));
  EXPECT_FALSE(with(nullptr, nullptr, nullptr));
}

}  // namespace
}  // namespace prism::report
