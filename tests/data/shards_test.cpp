#include "prism/data/shards.h"

#include <cstring>

#include "tests/data/helpers.h"
#include "tests/io/child_process.h"

namespace prism::data {
namespace {

std::vector<uint32_t> counting(size_t count, uint32_t modulo) {
  std::vector<uint32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<uint32_t>(i * 7919) % modulo;
  return tokens;
}

Identity write_shards(const std::filesystem::path& folder, const std::vector<uint32_t>& tokens, int64_t vocab_size,
                      int64_t shard_tokens = kDefaultShardTokens) {
  ShardWriter writer(folder, "train", vocab_size, shard_tokens);
  // Uneven pieces, so that shards end within them.
  for (size_t at = 0, size = 1; at < tokens.size(); at += size, size = size * 3 % 1009 + 1) {
    writer.append(std::span(tokens).subspan(at, std::min(size, tokens.size() - at)));
  }
  Identity identity;
  identity.tokenizer_hash = "0123456789abcdef";
  identity.documents = 3;
  identity.text_bytes = 99;
  identity.recipe = "fedcba9876543210";
  identity.sources = {{"some/path", 2, 1234, "00000000deadbeef"}};
  return writer.commit(identity);
}

std::vector<int64_t> widened(const std::vector<uint32_t>& tokens) { return {tokens.begin(), tokens.end()}; }

std::string opening_error(const TemporaryFolder& folder) {
  return message_of<Error>([&] { Shards(folder.path(), "train", ""); });
}

TEST(ShardFiles, HaveTheLayoutOfLlmC) {
  const TemporaryFolder folder;
  for (const auto& [vocab_size, magic, version, width] : {std::tuple{65536, 20240520, 1, 2}, {65537, 20240801, 7, 4}}) {
    write_shards(folder.path(), {1, 65535, 2}, vocab_size);
    const std::string file = contents(folder / "train_000000.bin");
    ASSERT_EQ(file.size(), 1024u + 3u * static_cast<unsigned>(width));
    int32_t header[256];
    std::memcpy(header, file.data(), sizeof(header));
    EXPECT_EQ(header[0], magic);
    EXPECT_EQ(header[1], version);
    EXPECT_EQ(header[2], 3);
    EXPECT_TRUE(std::all_of(header + 3, header + 256, [](int32_t word) { return word == 0; }));
    EXPECT_EQ(file.substr(1024),
              width == 2 ? std::string("\1\0\xFF\xFF\2\0", 6) : std::string("\1\0\0\0\xFF\xFF\0\0\2\0\0\0", 12));
  }
}

TEST(Shards, ReadBackWhatWasWrittenAcrossFiles) {
  const TemporaryFolder folder;
  for (const int64_t vocab_size : {50'000, 150'000}) {
    const auto tokens = counting(10'007, static_cast<uint32_t>(vocab_size));
    const Identity identity = write_shards(folder.path(), tokens, vocab_size, 1000);
    ASSERT_EQ(identity.shards.size(), 11u);
    EXPECT_EQ(identity.shards.back().tokens, 7);
    const Shards shards(folder.path(), "train", "0123456789abcdef");
    EXPECT_EQ(shards.identity(), identity);
    EXPECT_EQ(shards.tokens(), 10'007);
    EXPECT_EQ(tokens_of(folder.path(), "train"), widened(tokens));
    std::vector<int64_t> part(2500);
    shards.read(1999, part);
    const auto all = widened(tokens);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + 1999));
    shards.verify();
  }
}

TEST(Shards, RefuseToReadPastTheirEnd) {
  const TemporaryFolder folder;
  write_shards(folder.path(), counting(10, 5), 5);
  const Shards shards(folder.path(), "train", "");
  std::vector<int64_t> out(4);
  shards.read(6, out);
  EXPECT_THROW(shards.read(7, out), std::out_of_range);
  EXPECT_THROW(shards.read(-1, out), std::out_of_range);
  shards.read(10, {});
}

TEST(Shards, RefuseAnotherTokenizerWithBothHashes) {
  const TemporaryFolder folder;
  write_shards(folder.path(), {1, 2, 3}, 10);
  const std::string message = message_of<Error>([&] { Shards(folder.path(), "train", "aaaabbbbccccdddd"); });
  EXPECT_TRUE(contains(
      message, "train.json: made with the tokenizer 0123456789abcdef, but the tokenizer in use is aaaabbbbccccdddd"));
}

TEST(Shards, RefuseDamagedFilesByName) {
  const TemporaryFolder folder;
  const auto path = folder / "train_000000.bin";
  write_shards(folder.path(), {1, 2, 3}, 10);
  const std::string good = contents(path);
  const auto with_word = [&](size_t index, int32_t value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + 4 * index, &value, sizeof(value));
    return bytes;
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "got 0 bytes, fewer than its header of 1024"},
      {good.substr(0, 1023), "got 1023 bytes, fewer than its header of 1024"},
      {good.substr(0, 1029), "expected 1030 bytes for 3 tokens, got 1029; the file is truncated"},
      {good + "x", "expected 1030 bytes for 3 tokens, got 1031; the file is longer than its header says"},
      {with_word(0, 20240521),
       "expected a token shard (magic 20240520 version 1, or 20240801 version 7), got magic 20240521 version 1"},
      {with_word(1, 7), "got magic 20240520 version 7"},
      {with_word(2, 0), "expected a positive number of tokens, got 0"},
      {with_word(2, -1), "expected a positive number of tokens, got -1"},
      {with_word(2, 2), "expected 1028 bytes for 2 tokens, got 1030"},
      {with_word(2, 2).substr(0, 1028), "expected 3 tokens as train.json says, got 2"},
      {std::string("\xA1\xD9\x34\x01\7\0\0\0\3\0\0\0", 12) + std::string(1012 + 12, '\0'),
       "expected tokens of 2 bytes for a vocabulary of 10, got 4"},
  };
  for (const auto& [bytes, message] : cases) {
    write(path, bytes);
    EXPECT_TRUE(contains(opening_error(folder), path.string() + ": "));
    EXPECT_TRUE(contains(opening_error(folder), message));
  }
  std::filesystem::remove(path);
  EXPECT_TRUE(contains(opening_error(folder), path.string() + ": cannot open: No such file"));
}

TEST(Shards, NoticeChangedTokens) {
  const TemporaryFolder folder;
  const auto path = folder / "train_000000.bin";
  write_shards(folder.path(), {1, 2, 3}, 10);
  std::string bytes = contents(path);
  bytes[1026] = 9;
  write(path, bytes);
  const Shards shards(folder.path(), "train", "");
  EXPECT_TRUE(contains(message_of<Error>([&] { shards.verify(); }), "train_000000.bin: expected tokens with XXH3 "));
  bytes[1026] = 10;
  write(path, bytes);
  std::vector<int64_t> out(3);
  EXPECT_TRUE(contains(message_of<Error>([&] { Shards(folder.path(), "train", "").read(0, out); }),
                       "expected token ids below 10, got 10"));
}

TEST(Shards, NoticeABitFlippedInTheIdentity) {
  const TemporaryFolder folder;
  const auto identity = write_shards(folder.path(), {1, 2, 3}, 10);
  const std::string good = contents(folder / "train.json");
  int noticed = 0;
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    auto bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    try {
      EXPECT_EQ(identity_from_json(bad, "x"), identity) << bad;  // white space, or the name of the hash
    } catch (const Error&) {
      ++noticed;
    }
  }
  EXPECT_GT(noticed, 7 * static_cast<int>(good.size()));
}

TEST(Shards, RefuseABrokenIdentity) {
  const TemporaryFolder folder;
  EXPECT_TRUE(contains(opening_error(folder), "found no train.json; build them with `prism data build`"));
  write_shards(folder.path(), {1, 2, 3}, 10);
  const auto path = folder / "train.json";
  const std::string whole = contents(path);
  const std::string good = whole.substr(0, whole.rfind(",\n  \"xxh3\"")) + "\n}\n";  // or its hash tells all of them
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "train.json: invalid JSON"},
      {good.substr(0, good.size() / 2), "train.json: invalid JSON"},
      {"[]", "expected the identity of token shards"},
      {replaced("prism-shards", "other"), "expected the identity of token shards"},
      {replaced("\"version\": 1", "\"version\": 2"), "expected version 1 of the format, got 2"},
      {replaced("\"split\": \"train\"", "\"split\": \"val\""), "expected the split \"train\", got \"val\""},
      {replaced("\"documents\"", "\"paragraphs\""), "expected the key \"documents\", found none"},
      {replaced("\"tokens\": 3", "\"tokens\": -3"), "expected a whole number as \"tokens\", got -3"},
      {replaced("\"end_of_text\": 0", "\"end_of_text\": 10"),
       "expected \"end_of_text\" below \"vocab_size\" 10, got 10"},
      {replaced("\"tokens\": 3", "\"tokens\": 4"), "expected 4 tokens in all, its shards hold 3"},
      {replaced("train_000000.bin", "../train_000000.bin"), "expected the name of a file beside it"},
      {replaced("\"recipe\": \"fedcba9876543210\"", "\"recipe\": 5"), "unexpected value of \"recipe\": 5"},
  };
  for (const auto& [text, message] : cases) {
    write(path, text);
    EXPECT_TRUE(contains(opening_error(folder), message));
  }
}

TEST(ShardWriters, LeaveNothingWithoutACommit) {
  const TemporaryFolder folder;
  {
    ShardWriter writer(folder.path(), "train", 10, 2);
    writer.append(std::vector<uint32_t>{1, 2, 3, 4, 5});
    EXPECT_EQ(folder.entries(), 3u);
  }
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(ShardWriters, ReplaceEarlierShardsWhole) {
  const TemporaryFolder folder;
  write_shards(folder.path(), counting(50, 10), 10, 10);
  EXPECT_EQ(folder.entries(), 6u);
  write(folder / "train_000007.bin.tmp", "left by a killed process");
  write(folder / "train_notes.bin", "not ours");
  const auto tokens = counting(15, 9);
  {
    ShardWriter abandoned(folder.path(), "train", 10, 10);
    abandoned.append(counting(30, 10));
  }
  EXPECT_EQ(tokens_of(folder.path(), "train").size(), 50u) << "an abandoned writer leaves the old shards";
  write_shards(folder.path(), tokens, 10, 10);
  EXPECT_EQ(tokens_of(folder.path(), "train"), widened(tokens));
  EXPECT_EQ(folder.entries(), 4u);
}

TEST(ShardWriters, RefuseWhatShardsCannotHold) {
  const TemporaryFolder folder;
  ShardWriter writer(folder.path(), "train", 100);
  EXPECT_TRUE(contains(message_of<Error>([&] {
                         writer.append(std::vector<uint32_t>{5, 100});
                       }),
                       "expected token ids below the vocabulary size 100, got 100"));
  EXPECT_TRUE(
      contains(message_of<Error>([&] { writer.commit({}); }), "expected tokens in the split \"train\", got none"));
  EXPECT_TRUE(
      contains(message_of<Error>([&] { ShardWriter(folder.path(), "train", 0); }), "vocabulary size between 1"));
  EXPECT_TRUE(
      contains(message_of<Error>([&] { ShardWriter(folder.path(), "train", 5, 0); }), "tokens in a shard, got 0"));
  EXPECT_TRUE(
      contains(message_of<Error>([&] { ShardWriter(folder / "none", "train", 5); }), "none: expected a folder"));
}

TEST(ShardWriters, LeaveNothingWhenTheDiskIsFull) {
  const TemporaryFolder folder;
  write_shards(folder.path(), counting(100, 10), 10);
  const int status = io::in_child([&] {
    io::limit_file_size(1 << 20);
    try {
      write_shards(folder.path(), counting(1'000'000, 10), 10);
    } catch (const Error&) {  // which would blame the user
      return;
    }
  });
  EXPECT_EQ(status, 1);
  EXPECT_EQ(folder.entries(), 2u);
  EXPECT_EQ(tokens_of(folder.path(), "train"), widened(counting(100, 10)));
}

}  // namespace
}  // namespace prism::data
