#include <gtest/gtest.h>

#include "prism/text/byte_level.h"
#include "prism/text/unicode.h"
#include "prism/text/utf8.h"
#include "tests/text/small_tokenizer.h"

namespace prism::text {
namespace {

std::string repaired(std::string_view bytes) {
  std::string storage;
  return std::string(repair_utf8(bytes, storage));
}

std::string composed(std::string_view text) {
  std::string storage;
  return std::string(nfc(text, storage));
}

TEST(Utf8, ValidTextIsReturnedWithoutACopy) {
  const std::string text = "plain, é, €, 😀";
  std::string storage;
  EXPECT_EQ(repair_utf8(text, storage).data(), text.data());
  EXPECT_TRUE(storage.empty());
}

TEST(Utf8, EachBrokenPartBecomesOneReplacementCharacter) {
  EXPECT_EQ(repaired("a\xFFz"), "a\uFFFDz");
  EXPECT_EQ(repaired("\xC3"), "\uFFFD");                                // lead byte at the end
  EXPECT_EQ(repaired("\xE2\x82x"), "\uFFFDx");                          // two of three bytes are one part
  EXPECT_EQ(repaired("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");            // surrogate
  EXPECT_EQ(repaired("\xC0\xAF"), "\uFFFD\uFFFD");                      // overlong
  EXPECT_EQ(repaired("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // beyond U+10FFFF
  EXPECT_EQ(repaired("\xF0\x9F\x98\x80\xF0\x9F\x98"), "😀\uFFFD");
}

TEST(Utf8, RepairingTwiceChangesNothing) {
  std::string bytes;
  for (int a = 0; a < 256; ++a)
    bytes += {static_cast<char>(a), static_cast<char>(a * 7 + 3), 'x', static_cast<char>(255 - a)};
  EXPECT_EQ(repaired(repaired(bytes)), repaired(bytes));
}

TEST(Utf8, ThatComesInPiecesIsRepairedAsOne) {
  const std::string text = "a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80 \xE2\x82 b\xFF\x80 \xF0\x9F";
  for (size_t length = 1; length <= text.size(); ++length) {
    Utf8Stream stream;
    std::string taken;
    for (size_t at = 0; at < text.size(); at += length) {
      taken += stream.take(std::string_view(text).substr(at, length));
      EXPECT_EQ(repaired(taken), taken) << "part of a character was given out, pieces of " << length;
    }
    EXPECT_EQ(taken + stream.finish(), repaired(text)) << "pieces of " << length;
  }
}

TEST(Utf8, EveryCodePointSurvivesWritingAndReading) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    ASSERT_EQ(repaired(text), text);
    const char* p = text.data();
    ASSERT_EQ(next_code_point(p), c);
    ASSERT_EQ(p, text.data() + text.size());
    ASSERT_EQ(previous_character(p), text.data());
  }
}

TEST(ByteLevel, EveryByteHasItsOwnCharacterAndComesBack) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  EXPECT_EQ(characters_to_bytes(bytes_to_characters(bytes)), bytes);
  EXPECT_EQ(bytes_to_characters(" a\n"), "ĠaĊ");
}

TEST(ByteLevel, ATokenWithAnyOtherCharacterStandsForItself) {
  EXPECT_EQ(characters_to_bytes("Ġ€"), "Ġ€");
  EXPECT_EQ(characters_to_bytes("two words"), "two words");
}

TEST(Nfc, ComposesDecomposesAndOrders) {
  EXPECT_EQ(composed("e\u0301"), "\u00E9");
  EXPECT_EQ(composed("\u212B"), "\u00C5");                // angstrom sign
  EXPECT_EQ(composed("q\u0307\u0323"), "q\u0323\u0307");  // marks in order of class
  EXPECT_EQ(composed("\u00E9\u0323"), "\u1EB9\u0301");    // opens a composed letter again
  EXPECT_EQ(composed("\u1100\u1161\u11A8"), "\uAC01");    // Hangul
  EXPECT_EQ(composed("x\u0958y"), "x\u0915\u093Cy");      // composition exclusion
}

TEST(Nfc, KnowsNothingNewerThanUnicodeNine) {
  EXPECT_EQ(composed("\U00011935\U00011930"), "\U00011935\U00011930");  // composes since Unicode 13
  EXPECT_EQ(composed("\u1AC1\u0334"), "\u1AC1\u0334");                  // a mark since Unicode 13
}

TEST(Nfc, TextInNormalFormIsReturnedWithoutACopy) {
  const std::string text = "déjà vu, 東京, Привет 😀";
  std::string storage;
  EXPECT_EQ(nfc(text, storage).data(), text.data());
}

TEST(Nfc, LongRunsOfMarksTakeNoQuadraticTime) {
  const std::string marks = "a" + repeat("\u0301\u0323", size_t{1} << 18);
  std::string result;
  EXPECT_LT(processor_seconds([&] { result = composed(marks); }), kSecondsForAMegabyte);
  EXPECT_TRUE(result.starts_with("\u1EA1\u0323"));
  EXPECT_TRUE(result.ends_with("\u0301\u0301"));
}

}  // namespace
}  // namespace prism::text
