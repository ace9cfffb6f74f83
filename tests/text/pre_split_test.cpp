#include "prism/text/pre_split.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/text/small_tokenizer.h"

namespace prism::text {
namespace {

using Words = std::vector<std::string>;

Words split(PreSplit rule, std::string_view text) {
  Words words;
  WordScanner scanner(rule, text);
  for (std::string_view word; scanner.next(word);) words.emplace_back(word);
  return words;
}

Words qwen2(std::string_view text) { return split(PreSplit::Qwen2, text); }
Words gpt2(std::string_view text) { return split(PreSplit::Gpt2, text); }

TEST(PreSplit, WordsTakeOneCharacterBeforeTheirLetters) {
  EXPECT_EQ(qwen2("Hello world"), (Words{"Hello", " world"}));
  EXPECT_EQ(qwen2("(a)\tb"), (Words{"(a", ")", "\tb"}));
  EXPECT_EQ(qwen2("\nb"), (Words{"\n", "b"}));
  EXPECT_EQ(gpt2("(a)\tb"), (Words{"(", "a", ")", "\t", "b"}));
}

TEST(PreSplit, Qwen2TakesDigitsOneByOneAndGpt2Together) {
  EXPECT_EQ(qwen2("a 123"), (Words{"a", " ", "1", "2", "3"}));
  EXPECT_EQ(gpt2("a 123½"), (Words{"a", " 123½"}));
}

TEST(PreSplit, Qwen2IgnoresTheCaseOfContractions) {
  EXPECT_EQ(qwen2("it's I'LL we'Ve"), (Words{"it", "'s", " I", "'LL", " we", "'Ve"}));
  EXPECT_EQ(qwen2("x'ſy"), (Words{"x", "'ſ", "y"}));
  EXPECT_EQ(qwen2("'really"), (Words{"'re", "ally"}));
  EXPECT_EQ(qwen2("x'le"), (Words{"x", "'le"}));
  EXPECT_EQ(gpt2("it's I'LL"), (Words{"it", "'s", " I", "'", "LL"}));
}

TEST(PreSplit, TheLastBlankOfARunGoesToTheNextWord) {
  EXPECT_EQ(qwen2("a   b"), (Words{"a", "  ", " b"}));
  EXPECT_EQ(qwen2("a   "), (Words{"a", "   "}));
  EXPECT_EQ(qwen2("a  1"), (Words{"a", " ", " ", "1"}));
  EXPECT_EQ(qwen2("a \u3000 ."), (Words{"a", " \u3000", " ."}));
}

TEST(PreSplit, Qwen2EndsARunAfterItsLastLineEnd) {
  EXPECT_EQ(qwen2("a \n \r\n  b"), (Words{"a", " \n \r\n", " ", " b"}));
  EXPECT_EQ(qwen2("x;\n\n  y"), (Words{"x", ";\n\n", " ", " y"}));
  EXPECT_EQ(gpt2("x;\n\n  y"), (Words{"x", ";", "\n\n ", " y"}));
}

TEST(PreSplit, LongRunsTakeNoQuadraticTime) {
  for (const char* run : {" ", "\n", " \n", "a", "1", ".", "'s", "😀", "\u0301", "a "}) {
    const std::string text = repeat(run, (size_t{1} << 20) / std::string_view(run).size()) + "x";
    EXPECT_LT(processor_seconds([&] { qwen2(text), gpt2(text); }), kSecondsForAMegabyte) << run;
  }
}

}  // namespace
}  // namespace prism::text
