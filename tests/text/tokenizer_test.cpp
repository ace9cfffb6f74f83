#include "prism/text/tokenizer.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/text/small_tokenizer.h"

namespace prism::text {
namespace {

using Ids = std::vector<TokenId>;

Tokenizer small(const std::vector<std::pair<std::string, std::string>>& merges = {}) {
  return Tokenizer(small_parts(merges));
}

std::string refused(TokenizerParts parts) {
  return refusal([&] { const Tokenizer tokenizer(std::move(parts)); });
}

TEST(Tokenizer, AppliesMergesWithinWordsOnly) {
  const Tokenizer tokenizer = small({{"a", "b"}, {"b", " "}});
  EXPECT_EQ(tokenizer.encode("ab b a"), (Ids{256, ' ', 'b', ' ', 'a'}));
}

TEST(Tokenizer, SpecialTokensAreParsedUnlessTheyShallBeText) {
  const Tokenizer tokenizer = small();
  EXPECT_EQ(tokenizer.end_of_text(), 256u);
  EXPECT_EQ(tokenizer.encode("a<|endoftext|>b"), (Ids{'a', 256, 'b'}));
  EXPECT_EQ(tokenizer.encode("<|endoftext|>", SpecialTokens::Text).size(), kEndOfText.size());
}

TEST(Tokenizer, NormalizesUnlessItHasNoNormalizer) {
  EXPECT_EQ(small().encode("e\u0301"), (Ids{0xC3, 0xA9}));
  TokenizerParts parts = small_parts();
  parts.normalizer = Normalizer::None;
  EXPECT_EQ(Tokenizer(parts).encode("e\u0301"), (Ids{'e', 0xCC, 0x81}));
}

TEST(Tokenizer, BrokenBytesAreEncodedAsTheReplacementCharacter) {
  EXPECT_EQ(small().encode("a\xFF"), small().encode("a\uFFFD"));
}

TEST(Tokenizer, EncodingAppendsToWhatIsThere) {
  Ids ids = {7};
  small().encode("a", ids);
  EXPECT_EQ(ids, (Ids{7, 'a'}));
}

TEST(Tokenizer, AnEmptyTextHasNoTokens) { EXPECT_TRUE(small().encode("").empty()); }

TEST(Tokenizer, DecodingGivesTheTextBackAndMarksPartsOfCharacters) {
  const Tokenizer tokenizer = small({{"a", "b"}});
  const std::string text = "ab, é 😀\n";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  EXPECT_EQ(tokenizer.decode(Ids{0xC3}), "\uFFFD");
  EXPECT_EQ(tokenizer.decode(Ids{0xC3, 0xA9}), "é");
  EXPECT_EQ(tokenizer.bytes(0xC3), "\xC3");
}

TEST(Tokenizer, DecodingLeavesOutUnknownIdsAndOnRequestSpecialTokens) {
  const Tokenizer tokenizer = small();
  EXPECT_EQ(tokenizer.decode(Ids{'a', 999'999, 256}), "a<|endoftext|>");
  EXPECT_EQ(tokenizer.decode(Ids{'a', 999'999, 256}, /*skip_special_tokens=*/true), "a");
}

TEST(Tokenizer, TheSizeIsTheGreatestIdPlusOne) {
  EXPECT_EQ(small().size(), 257);
  TokenizerParts parts = small_parts();
  parts.added_tokens.clear();
  parts.vocabulary.emplace_back("far", 1000);
  EXPECT_EQ(Tokenizer(parts).size(), 1001);
}

TEST(Tokenizer, ThreadsGetTheIdsThatOneThreadGets) {
  const Tokenizer tokenizer = small({{"a", "b"}, {"ab", "ab"}});
  const std::string text = repeat("abab abba ", 1000);
  const Ids expected = tokenizer.encode(text);
  std::vector<Ids> results(4);
  {
    std::vector<std::jthread> threads;
    for (Ids& result : results) threads.emplace_back([&, &mine = result] { mine = tokenizer.encode(text); });
  }
  for (const Ids& result : results) EXPECT_EQ(result, expected);
}

TEST(Tokenizer, TheHashTellsContentsApartAndNotHowTheyWereGiven) {
  const std::string hash = small({{"a", "b"}}).hash();
  EXPECT_EQ(hash.size(), 32u);
  TokenizerParts parts = small_parts({{"a", "b"}});
  std::reverse(parts.vocabulary.begin(), parts.vocabulary.end());
  parts.merges.insert(parts.merges.begin(), parts.merges.front());  // the later of two equals counts
  EXPECT_EQ(Tokenizer(parts).hash(), hash);

  EXPECT_NE(small({{"b", "a"}}).hash(), hash);
  parts = small_parts({{"a", "b"}});
  parts.normalizer = Normalizer::None;
  EXPECT_NE(Tokenizer(parts).hash(), hash);
  parts = small_parts({{"a", "b"}});
  parts.pre_split = PreSplit::Gpt2;
  EXPECT_NE(Tokenizer(parts).hash(), hash);
  parts = small_parts({{"a", "b"}});
  parts.added_tokens[0].lstrip = true;
  EXPECT_NE(Tokenizer(parts).hash(), hash);
}

TEST(Tokenizer, RefusesPartsThatDoNotFitTogether) {
  TokenizerParts parts = small_parts();
  parts.vocabulary.erase(parts.vocabulary.begin() + ' ');
  EXPECT_TRUE(contains(refused(parts), "lacks byte 0x20, written \"Ġ\""));

  parts = small_parts();
  parts.vocabulary.emplace_back("twin", 5);
  EXPECT_TRUE(contains(refused(parts), "have the same id 5"));

  parts = small_parts();
  parts.vocabulary.emplace_back("a", 300);
  EXPECT_TRUE(contains(refused(parts), "token \"a\" appears twice"));

  parts = small_parts();
  parts.vocabulary.emplace_back("far", 4'000'000'000u);
  EXPECT_TRUE(contains(refused(parts), "token \"far\" has id 4000000000"));

  parts = small_parts();
  parts.merges.emplace_back("a", "b");
  EXPECT_TRUE(contains(refused(parts), "merge 1 (\"a\" \"b\"): \"ab\" is not in the vocabulary"));
}

TEST(Tokenizer, RefusesAddedTokensThatWouldMeanOtherIdsElsewhere) {
  TokenizerParts parts = small_parts();
  parts.added_tokens[0].id = 300;
  EXPECT_TRUE(contains(refused(parts), "added token \"<|endoftext|>\" has id 300 where it must be 256"));

  parts = small_parts();
  parts.added_tokens.push_back(parts.added_tokens[0]);
  EXPECT_TRUE(contains(refused(parts), "appears twice"));

  parts = small_parts();
  parts.added_tokens.push_back({.content = "", .id = 257});
  EXPECT_TRUE(contains(refused(parts), "empty"));

  parts = small_parts();
  parts.added_tokens.push_back({.content = "\xFF", .id = 257});
  EXPECT_TRUE(contains(refused(parts), "not valid UTF-8"));

  parts = small_parts();
  parts.added_tokens.push_back({.content = "e\u0301", .id = 257, .normalized = true});
  EXPECT_TRUE(contains(refused(parts), "is \"normalized\" but not in NFC"));

  parts = small_parts();
  parts.added_tokens.push_back({.content = "<a>", .id = 257, .rstrip = true});
  parts.added_tokens.push_back({.content = " b", .id = 258});
  EXPECT_TRUE(contains(refused(parts), "\"<a>\" has \"rstrip\" while \" b\" begins with a blank"));

  parts = small_parts();
  parts.added_tokens.clear();
  parts.vocabulary.emplace_back("far", 257);
  parts.added_tokens.push_back({.content = "<a>", .id = 257});
  EXPECT_TRUE(contains(refused(parts), "would share id 257 with \"far\""));
}

TEST(Tokenizer, LongTextsTakeNoQuadraticTime) {
  const Tokenizer tokenizer = small({{"a", "a"}, {" ", " "}, {"\xF0", "\x9F"}, {"\xF0\x9F", "\x98"}});
  for (const char* run : {"a", " ", "😀", "\n", "e\u0301", "\u0301\u0323", "<|", "\xFF"}) {
    const std::string text = repeat(run, (size_t{1} << 20) / std::string_view(run).size());
    EXPECT_LT(processor_seconds([&] { tokenizer.encode(text); }), kSecondsForAMegabyte) << run;
  }
}

}  // namespace
}  // namespace prism::text
