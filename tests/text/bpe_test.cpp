#include "prism/text/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/text/small_tokenizer.h"

namespace prism::text {
namespace {

using Ids = std::vector<TokenId>;

// Bytes have their own value as id.
BpeModel model_with(const std::vector<MergeRule>& rules) {
  BpeModel model{{}, MergeTable(rules), {}};
  for (TokenId byte = 0; byte < 256; ++byte) model.byte_tokens[byte] = byte;
  return model;
}

Ids encode(BpeEncoder& encoder, std::string_view word) {
  Ids ids;
  encoder.encode(word, word.data() + word.size(), ids);
  return ids;
}

// The definition: while any pair merges, merge the one of lowest rank, the leftmost of equals.
Ids by_definition(const std::vector<MergeRule>& rules, std::string_view word) {
  Ids ids;
  for (const char byte : word) ids.push_back(static_cast<unsigned char>(byte));
  for (bool merged = true; merged;) {
    merged = false;
    for (const MergeRule& rule : rules) {
      const TokenId pair[] = {rule.left, rule.right};
      const auto place = std::search(ids.begin(), ids.end(), std::begin(pair), std::end(pair));
      if (place == ids.end()) continue;
      *place = rule.result;
      ids.erase(place + 1);
      merged = true;
      break;
    }
  }
  return ids;
}

TEST(MergeTable, OfAPairListedTwiceTheLaterRankCounts) {
  const MergeTable table(std::vector<MergeRule>{{'a', 'b', 256}, {'b', 'c', 257}, {'a', 'b', 256}});
  EXPECT_EQ(table.find('a', 'b').rank, 2u);
  EXPECT_EQ(table.find('b', 'c').rank, 1u);
  EXPECT_EQ(table.find('c', 'a').rank, MergeTable::kNoRank);
}

TEST(Bpe, MergesTheLowestRankFirstAndFromTheLeft) {
  const auto model = model_with({{'b', 'c', 256}, {'a', 'b', 257}, {'a', 'a', 258}, {258, 'a', 259}});
  BpeEncoder encoder(model);
  EXPECT_EQ(encode(encoder, "abc"), (Ids{'a', 256}));
  EXPECT_EQ(encode(encoder, "abab"), (Ids{257, 257}));
  EXPECT_EQ(encode(encoder, "aaaaa"), (Ids{258, 259}));
}

TEST(Bpe, EqualsItsDefinitionOnRandomWordsOfEveryLength) {
  std::mt19937 random(7);
  std::vector<MergeRule> rules;
  for (TokenId id = 256; id < 330; ++id) {
    const auto any = [&] { return random() % 3 == 0 && id > 256 ? 256 + random() % (id - 256) : 'a' + random() % 3; };
    const MergeRule rule = {static_cast<TokenId>(any()), static_cast<TokenId>(any()), id};
    const auto same = [&](const MergeRule& other) { return other.left == rule.left && other.right == rule.right; };
    if (std::none_of(rules.begin(), rules.end(), same)) rules.push_back(rule);
  }
  const auto model = model_with(rules);
  BpeEncoder encoder(model);
  for (int round = 0; round < 3000; ++round) {
    std::string word(1 + random() % (round % 10 == 0 ? 300 : 40), 'a');
    for (char& byte : word) byte = static_cast<char>('a' + random() % 3);
    const Ids expected = by_definition(rules, word);
    ASSERT_EQ(encode(encoder, word), expected) << word;
    ASSERT_EQ(encode(encoder, word), expected) << word << " from the cache";
  }
}

TEST(Bpe, TheCacheTellsApartWordsThatDifferOnlyInLengthOrZeroBytes) {
  const auto model = model_with({});
  BpeEncoder encoder(model);
  for (int round = 0; round < 2; ++round) {
    for (const std::string& word :
         {std::string("a"), std::string("a\0", 2), std::string("a\0\0", 3), std::string("\0a", 2)}) {
      EXPECT_EQ(encode(encoder, word), by_definition({}, word));
    }
  }
}

TEST(Bpe, ReadsNothingBehindTheTextAndIgnoresWhatFollowsTheWord) {
  const auto model = model_with({{'a', 'b', 256}});
  BpeEncoder encoder(model);
  const std::string text = "abXYZ and more than thirty-two bytes behind the word";
  Ids with_more_text;
  encoder.encode(std::string_view(text).substr(0, 2), text.data() + text.size(), with_more_text);
  const std::vector<char> alone = {'a', 'b'};  // address sanitizer sees a read past it
  EXPECT_EQ(with_more_text, encode(encoder, {alone.data(), alone.size()}));
}

TEST(Bpe, LongWordsTakeNoQuadraticTime) {
  std::vector<MergeRule> rules = {{'a', 'a', 256}};
  for (TokenId id = 257; id < 266; ++id) rules.push_back({id - 1, id - 1, id});
  const auto model = model_with(rules);
  BpeEncoder encoder(model);
  const std::string word(size_t{1} << 20, 'a');
  Ids ids;
  EXPECT_LT(processor_seconds([&] { ids = encode(encoder, word); }), kSecondsForAMegabyte);
  EXPECT_EQ(ids, Ids(1 << 10, 265));
}

}  // namespace
}  // namespace prism::text
