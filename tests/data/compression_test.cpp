#include <random>

#include "prism/data/bytes.h"
#include "tests/data/helpers.h"
#include "tests/data/memory_stream.h"

namespace prism::data {
namespace {

std::string noise(size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>('a' + random() % 16);
  return text;
}

// Reads in chunks of the given size.
std::string read_all(ByteStream& stream, size_t chunk) {
  std::string text, buffer(chunk, '\0');
  for (size_t got = chunk; got == chunk;) {
    got = stream.read({buffer.data(), chunk});
    text.append(buffer, 0, got);
  }
  return text;
}

struct Codec {
  std::string name;
  std::string (*encode)(std::string_view);
  std::unique_ptr<ByteStream> (*decode)(std::unique_ptr<ByteStream>);
};

class Compression : public testing::TestWithParam<Codec> {
 protected:
  std::string decode(std::string_view packed, size_t chunk = 4096) {
    return read_all(*GetParam().decode(from_memory(packed, "file")), chunk);
  }
};

TEST_P(Compression, GivesBackTheText) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4096}, size_t{1'000'000}}) {
    const std::string text = noise(size, 2);
    const std::string packed = GetParam().encode(text);
    for (const size_t chunk : {size_t{7}, size_t{4096}, size_t{1} << 20}) EXPECT_TRUE(decode(packed, chunk) == text);
  }
}

TEST_P(Compression, MembersThatFollowEachOtherAreOneStream) {
  const std::string a = noise(300'000, 3), b = noise(500'000, 4);
  const auto& encode = GetParam().encode;
  EXPECT_TRUE(decode(encode(a) + encode("") + encode(b)) == a + b);
}

TEST_P(Compression, RefusesEveryTruncation) {
  const std::string packed = GetParam().encode(noise(3000, 5)) + GetParam().encode("second");
  const size_t second = packed.size() - GetParam().encode("second").size();
  for (size_t size = 1; size < packed.size(); ++size) {
    if (size == second) continue;
    const std::string message = message_of<Error>([&] { decode(packed.substr(0, size)); });
    EXPECT_TRUE(contains(message, "file: ")) << size;
    EXPECT_TRUE(contains(message, "truncated")) << size;
  }
}

TEST_P(Compression, RefusesFlippedBytes) {
  const std::string text = noise(3000, 6);
  const std::string packed = GetParam().encode(text);
  int harmless = 0;
  for (size_t at = 0; at < packed.size(); at += 3) {
    std::string broken = packed, decoded;
    broken[at] = static_cast<char>(broken[at] ^ 0x10);
    const std::string message = message_of<Error>([&] { decoded = decode(broken); });
    if (message != "nothing was thrown") {
      EXPECT_TRUE(message.starts_with("file: ")) << message;
      continue;
    }
    EXPECT_TRUE(decoded == text) << at;
    ++harmless;
  }
  EXPECT_LE(harmless, 3) << "the time and the system in gzip's header carry nothing";
}

TEST_P(Compression, RefusesOtherBytes) {
  EXPECT_TRUE(contains(message_of<Error>([&] { decode("plain text, not compressed at all"); }), "file: expected "));
  const std::string trailing = GetParam().encode("text") + "garbage that is long enough";
  EXPECT_TRUE(contains(message_of<Error>([&] { decode(trailing); }), "file: expected "));
}

INSTANTIATE_TEST_SUITE_P(Codecs, Compression,
                         testing::Values(Codec{"gzip", gzip, decode_gzip},
                                         Codec{"zstd", [](std::string_view text) { return zstd(text); }, decode_zstd}),
                         [](const auto& codec) { return codec.param.name; });

TEST(Gzip, ZeroPaddingMayFollow) {
  const std::string packed = gzip("a") + std::string(700'000, '\0') + gzip("b") + std::string(3, '\0');
  EXPECT_EQ(read_all(*decode_gzip(from_memory(packed, "file")), 100), "ab");
}

TEST(Zstd, ReadsLongWindowsUpTo27AndSaysSoOfLongerOnes) {
  const std::string text = noise(100'000, 7);
  EXPECT_TRUE(read_all(*decode_zstd(from_memory(zstd(text, 27), "file")), 4096) == text);
  const std::string packed = zstd(text, 28);
  EXPECT_TRUE(contains(message_of<Error>([&] { read_all(*decode_zstd(from_memory(packed, "file")), 4096); }),
                       "file: expected a zstd window of at most 128 MiB (--long=27), got a larger one"));
}

TEST(CompressedFiles, AreReadByTheirExtensions) {
  const TemporaryFolder folder;
  const std::string text = "one\n<|endoftext|>\ntwo\n", lines = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n";
  EXPECT_EQ(documents_of(write(folder / "a.txt.gz", gzip(text))), (Strings{"one\n", "two\n"}));
  EXPECT_EQ(documents_of(write(folder / "a.txt.zst", zstd(text))), (Strings{"one\n", "two\n"}));
  EXPECT_EQ(documents_of(write(folder / "a.jsonl.gz", gzip(lines))), (Strings{"one", "two"}));
  EXPECT_EQ(documents_of(write(folder / "a.jsonl.zst", zstd(lines))), (Strings{"one", "two"}));
}

}  // namespace
}  // namespace prism::data
