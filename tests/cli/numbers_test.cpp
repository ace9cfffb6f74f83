#include "prism/cli/numbers.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "prism/cli/terminal.h"
#include "prism/io/spelling.h"

namespace prism::cli {
namespace {

TEST(Numbers, AreGroupedByThousands) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(grouped(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Numbers, OfThingsAreSingularForOne) {
  EXPECT_EQ(io::counted(0, "file"), "0 files");
  EXPECT_EQ(io::counted(1, "file"), "1 file");
  EXPECT_EQ(io::counted(1234, "file"), "1,234 files");
}

TEST(Numbers, OfBytesChooseTheirUnit) {
  EXPECT_EQ(in_bytes(0), "0 B");
  EXPECT_EQ(in_bytes(999), "999 B");
  EXPECT_EQ(in_bytes(1000), "1.0 kB");
  EXPECT_EQ(in_bytes(999949), "999.9 kB");
  EXPECT_EQ(in_bytes(999951), "1.0 MB") << "never 1000.0 kB";
  EXPECT_EQ(in_bytes(46.04e6), "46.0 MB");
  EXPECT_EQ(in_bytes(2e18), "2000.0 PB");
}

TEST(Numbers, OfSecondsChooseTheirUnit) {
  EXPECT_EQ(in_time(0), "0.0 s");
  EXPECT_EQ(in_time(9.94), "9.9 s");
  EXPECT_EQ(in_time(9.96), "10 s");
  EXPECT_EQ(in_time(59.6), "1 min 00 s");
  EXPECT_EQ(in_time(185), "3 min 05 s");
  EXPECT_EQ(in_time(7620), "2 h 07 min");
  EXPECT_EQ(in_time(273600), "3 d 4 h");
  EXPECT_EQ(in_time(std::numeric_limits<double>::infinity()), "unknown");
  EXPECT_EQ(in_time(-1), "unknown");
}

TEST(Numbers, OfPartsReachOneHundredOnlyAtTheEnd) {
  EXPECT_EQ(in_percent(0, 10), "  0 %");
  EXPECT_EQ(in_percent(999, 1000), " 99 %");
  EXPECT_EQ(in_percent(1000, 1000), "100 %");
  EXPECT_EQ(in_percent(1001, 1000), "100 %");
  EXPECT_EQ(in_percent(0, 0), "100 %");
}

TEST(Fitted, CutsBetweenCharactersAndMarksTheCut) {
  EXPECT_EQ(fitted("abc", 3), "abc");
  EXPECT_EQ(fitted("abcd", 3), "ab…");
  EXPECT_EQ(fitted("äöü", 3), "äöü");
  EXPECT_EQ(fitted("äöüß", 3), "äö…");
  EXPECT_EQ(fitted("abc", 1), "…");
  EXPECT_EQ(fitted("abc", 0), "");
}

TEST(NearestWord, IsNamedOnlyWhenItIsNear) {
  const std::vector<std::string> known = {"train", "tokenizer", "data", "doctor"};
  EXPECT_EQ(io::nearest_word("tokeniser", known), "tokenizer");
  EXPECT_EQ(io::nearest_word("trian", known), "train");
  EXPECT_EQ(io::nearest_word("zzzz", known), "");
  EXPECT_EQ(io::nearest_word("x", {}), "");
}

}  // namespace
}  // namespace prism::cli
