#include "prism/text/added_tokens.h"

#include <gtest/gtest.h>

#include "tests/text/small_tokenizer.h"

namespace prism::text {
namespace {

using Pieces = std::vector<std::string>;

// Returns the pieces of the text, with added tokens in brackets.
Pieces split(std::vector<AddedToken> tokens, std::string_view text, bool specials_are_text = false) {
  Pieces pieces;
  AddedTokenFinder(std::move(tokens))
      .split(
          text, specials_are_text, [&](std::string_view piece) { pieces.emplace_back(piece); },
          [&](const AddedToken& token) { pieces.push_back("[" + token.content + "]"); });
  return pieces;
}

TEST(AddedTokens, TheLeftmostAndThereTheLongestIsFound) {
  const std::vector<AddedToken> tokens = {
      {.content = "ab"}, {.content = "abcd"}, {.content = "bc"}, {.content = "<x>"}};
  EXPECT_EQ(split(tokens, "abcdabc<x"), (Pieces{"[abcd]", "[ab]", "c<x"}));
  EXPECT_EQ(split(tokens, "bcab<x>"), (Pieces{"[bc]", "[ab]", "[<x>]"}));
}

TEST(AddedTokens, WithoutAnyTheTextIsOnePiece) {
  EXPECT_EQ(split({}, "text"), (Pieces{"text"}));
  EXPECT_EQ(split({}, ""), Pieces{});
}

TEST(AddedTokens, StrippingTakesBlanksOfAllKindsAlong) {
  EXPECT_EQ(split({{.content = "<x>", .lstrip = true}}, "a \u3000<x> b"), (Pieces{"a", "[<x>]", " b"}));
  EXPECT_EQ(split({{.content = "<x>", .rstrip = true}}, "a <x>\n\u00A0b"), (Pieces{"a ", "[<x>]", "b"}));
  EXPECT_EQ(split({{.content = "<x>", .lstrip = true, .rstrip = true}}, " <x>  <x> "), (Pieces{"[<x>]", "[<x>]"}));
}

TEST(AddedTokens, ASingleWordHasNoWordCharacterBesideIt) {
  const std::vector<AddedToken> tokens = {{.content = "ab", .single_word = true}};
  EXPECT_EQ(split(tokens, "ab-ab"), (Pieces{"[ab]", "-", "[ab]"}));
  EXPECT_EQ(split(tokens, "ab_ éab abc"), (Pieces{"ab_ éab abc"}));
}

TEST(AddedTokens, ARefusedMatchStillCoversItsPlace) {
  EXPECT_EQ(split({{.content = "abc", .single_word = true, .special = false}, {.content = "bc"}}, "abcd"),
            (Pieces{"abcd"}));
}

TEST(AddedTokens, SpecialOnesCanBeLeftAsText) {
  const std::vector<AddedToken> tokens = {{.content = "<s>", .special = true}, {.content = "<n>", .special = false}};
  EXPECT_EQ(split(tokens, "<s><n>", /*specials_are_text=*/true), (Pieces{"<s>", "[<n>]"}));
}

TEST(AddedTokens, RunsOfAlmostTokensTakeNoQuadraticTime) {
  const std::vector<AddedToken> tokens = {{.content = std::string(100, '<') + "x", .lstrip = true, .rstrip = true}};
  const std::string text(size_t{1} << 20, '<');
  EXPECT_LT(processor_seconds([&] { split(tokens, text); }), kSecondsForAMegabyte);
  const std::string blanks(size_t{1} << 20, ' ');
  EXPECT_LT(processor_seconds([&] { split({{.content = " ", .lstrip = true}}, blanks); }), kSecondsForAMegabyte);
}

}  // namespace
}  // namespace prism::text
