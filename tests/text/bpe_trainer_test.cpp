#include "prism/text/bpe_trainer.h"

#include <gtest/gtest.h>

#include "prism/text/word_counts.h"
#include "tests/text/small_tokenizer.h"

namespace prism::text {
namespace {

TextSource from(std::vector<std::string> pieces) {
  return [pieces = std::move(pieces), next = size_t{0}](std::string& piece) mutable {
    if (next == pieces.size()) return false;
    piece = pieces[next++];
    return true;
  };
}

TrainerOptions small_options(int64_t vocabulary) {
  TrainerOptions options;
  options.vocabulary = vocabulary;
  options.least_count = 1;
  options.threads = 1;
  return options;
}

TEST(Trainer, MergesTheMostFrequentPairFirst) {
  const auto [tokenizer, bytes, words, dropped] = train_bpe(from({"xy xy xy cd cd"}), small_options(260));
  EXPECT_EQ(tokenizer.bytes(256), "xy");   // three times
  EXPECT_EQ(tokenizer.bytes(257), "cd");   // twice, as are " c" and " xy", and c has the smallest id
  EXPECT_EQ(tokenizer.bytes(258), " xy");  // twice, as is " cd", and xy is older
  EXPECT_EQ(bytes, 14u);
  EXPECT_EQ(words, 3);
  EXPECT_EQ(dropped, 0);
}

TEST(Trainer, OfEquallyFrequentPairsTheOneWithSmallerIdsIsFirst) {
  const Tokenizer tokenizer = train_bpe(from({"dc", "da", "ba"}), small_options(260)).tokenizer;
  EXPECT_EQ(tokenizer.bytes(256), "ba");
  EXPECT_EQ(tokenizer.bytes(257), "da");
  EXPECT_EQ(tokenizer.bytes(258), "dc");
}

TEST(Trainer, BytesComeFirstAndSpecialTokensLast) {
  TrainerOptions options = small_options(260);
  options.special_tokens = {"<|endoftext|>", "<pad>"};
  const Tokenizer tokenizer = train_bpe(from({"aaaa aaaa"}), options).tokenizer;
  EXPECT_EQ(tokenizer.size(), 260);
  EXPECT_EQ(tokenizer.bytes(0), "!");
  EXPECT_EQ(tokenizer.id("Ġ"), 220u);
  EXPECT_EQ(tokenizer.end_of_text(), 258u);
  EXPECT_EQ(tokenizer.id("<pad>"), 259u);
  EXPECT_TRUE(tokenizer.is_special(259));
}

TEST(Trainer, ATokenThatTwoPairsMakeIsOneToken) {
  // Runs of a of every length: "aaa" is made from aa+a and from a+aa.
  std::vector<std::string> pieces;
  for (size_t n = 1; n < 60; ++n) pieces.push_back(std::string(n, 'a') + "b");
  TrainerOptions options = small_options(300);
  const Tokenizer tokenizer = train_bpe(from(pieces), options).tokenizer;
  EXPECT_EQ(tokenizer.size(), 300);
  for (const std::string& piece : pieces) EXPECT_EQ(tokenizer.decode(tokenizer.encode(piece)), piece);
}

TEST(Trainer, NothingIsLearnedAcrossWordsOrPieces) {
  TrainerOptions options = small_options(300);
  options.allow_fewer = true;
  const Tokenizer tokenizer = train_bpe(from({"a", "b", "a", "b", "1 2 1 2"}), options).tokenizer;
  EXPECT_EQ(tokenizer.size(), 257);
}

TEST(Trainer, PairsBelowTheLeastCountAreNotMerged) {
  TrainerOptions options = small_options(300);
  options.least_count = 2;
  options.allow_fewer = true;
  EXPECT_EQ(train_bpe(from({"ab", "ab", "cd"}), options).tokenizer.size(), 258);
}

TEST(Trainer, TooLittleTextIsAnErrorUnlessFewerTokensWillDo) {
  TrainerOptions options = small_options(300);
  EXPECT_TRUE(contains(refusal([&] { train_bpe(from({"abc"}), options); }), "gives 259 tokens of 300"));
  EXPECT_TRUE(contains(refusal([&] { train_bpe(from({}), options); }), "gives 257 tokens of 300"));
  options.allow_fewer = true;
  EXPECT_EQ(train_bpe(from({"abc"}), options).tokenizer.size(), 259);
}

TEST(Trainer, AVocabularyMustHoldTheBytesAndTheSpecialTokens) {
  EXPECT_TRUE(contains(refusal([&] { train_bpe(from({"a"}), small_options(256)); }),
                       "a vocabulary of 256 tokens is too small; the 256 bytes and 1 special tokens need 257"));
}

TEST(Trainer, NormalizesAndRepairsBeforeItCounts) {
  const Tokenizer tokenizer = train_bpe(from({"e\u0301e\u0301", "\u00E9\xFF"}), small_options(258)).tokenizer;
  EXPECT_EQ(tokenizer.bytes(256), "\u00E9");
}

TEST(Trainer, RareWordsAreDroppedWhereMemoryEnds) {
  std::vector<std::string> pieces;
  for (int i = 0; i < 40'000; ++i)
    pieces.push_back("w" + std::string(1, static_cast<char>('a' + i % 26)) + "xyz frequent");
  for (int i = 0; i < 40'000; ++i) {
    std::string word(1, ' ');
    for (int rest = i; rest > 0; rest /= 26) word += static_cast<char>('a' + rest % 26);
    pieces.push_back(word + "qqqqqqqqqqqqqqqq");
  }
  std::string hash;
  for (const int64_t threads : {1, 3}) {
    TrainerOptions options = small_options(300);
    options.threads = threads;
    options.word_memory = size_t{1} << 20;
    const TrainerResult result = train_bpe(from(pieces), options);
    EXPECT_EQ(result.dropped_words, 40'000);
    EXPECT_EQ(result.distinct_words, 27);
    if (threads == 1) hash = result.tokenizer.hash();
    EXPECT_EQ(result.tokenizer.hash(), hash);
  }
}

TEST(Trainer, CountsTextOfAnyLength) {
  constexpr int kPieces = 72;
  int next = 0;
  const TextSource source = [&](std::string& piece) {
    piece = next == kPieces - 1 ? "z" + repeat("\nqr", 1000) : repeat("\nab", size_t{1} << 18);
    return next++ < kPieces;
  };
  const TrainerResult result = train_bpe(source, small_options(259));
  EXPECT_EQ(result.bytes, 71u * 3 * (1 << 18) + 3001);
  EXPECT_EQ(result.tokenizer.bytes(256), "ab");
  EXPECT_EQ(result.tokenizer.bytes(257), "qr");
}

TEST(Trainer, ReportsProgressOfBothPhasesOnTheCallersThread) {
  std::vector<TrainerProgress> reports;
  TrainerOptions options = small_options(700);
  options.progress = [&](const TrainerProgress& progress) { reports.push_back(progress); };
  std::vector<std::string> pieces;
  for (int i = 0; i < 2000; ++i)
    pieces.push_back(std::to_string(i * 7919) + "x" + repeat("ab", i % 50) + repeat("c", i % 71));
  train_bpe(from(pieces), options);
  ASSERT_GE(reports.size(), 2u);
  EXPECT_EQ(reports.front().phase, TrainerProgress::Phase::Counting);
  EXPECT_GT(reports.front().bytes, 0u);
  EXPECT_EQ(reports.back().phase, TrainerProgress::Phase::Merging);
  EXPECT_EQ(reports.back().tokens, 512);
  EXPECT_EQ(reports.back().vocabulary, 700);
}

TEST(Trainer, AFailingSourceStopsIt) {
  const TextSource failing = [](std::string&) -> bool { throw Error("no such text"); };
  EXPECT_EQ(refusal([&] { train_bpe(failing, small_options(300)); }), "no such text");
}

TEST(WordCounts, CountsAndAddsUp) {
  WordCounts counts, others;
  for (int i = 0; i < 10'000; ++i) counts.add(std::to_string(i % 5000));
  others.add("7", 5);
  others.add("new");
  counts.add(others);
  ASSERT_EQ(counts.size(), 5001u);
  EXPECT_EQ(counts.word(7), "7");
  EXPECT_EQ(counts.count(7), 7);
  EXPECT_EQ(counts.word(5000), "new");
}

}  // namespace
}  // namespace prism::text
