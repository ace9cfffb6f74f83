#include "prism/io/safetensors.h"

#include <array>

#include "prism/io/atomic_file.h"
#include "prism/io/error.h"
#include "prism/io/hash.h"
#include "tests/io/child_process.h"
#include "tests/io/temporary_folder.h"

namespace prism::io {
namespace {

std::span<const std::byte> as_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string file_with(std::string_view header, std::string_view data = "") {
  const uint64_t length = header.size();
  std::string text(reinterpret_cast<const char*>(&length), sizeof(length));
  return text.append(header).append(data);
}

SafetensorsContent parse(std::string_view bytes) { return parse_safetensors(as_bytes(bytes), "x.st"); }

TensorView view(std::string name, std::string dtype, std::vector<int64_t> shape, std::string_view data) {
  return {std::move(name), std::move(dtype), std::move(shape), as_bytes(data).data(), data.size()};
}

std::string text_of(const TensorView& tensor) { return {reinterpret_cast<const char*>(tensor.data), tensor.bytes}; }

TEST(Safetensors, ReadsBackWhatWasWritten) {
  const TemporaryFolder folder;
  const std::array tensors{view("b.weight", "F32", {2, 1}, "12345678"), view("naïve \"名\"\n", "U8", {3}, "abc"),
                           view("empty", "F64", {0, 7}, ""), view("scalar", "I64", {}, "ABCDEFGH")};
  write_safetensors(folder / "a.safetensors", tensors, {{"step", "10"}});
  SafetensorsFile opened(folder / "a.safetensors");
  const SafetensorsFile file = std::move(opened);
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const auto& tensor : tensors) {
    const auto* found = file.find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->dtype, tensor.dtype);
    EXPECT_EQ(found->shape, tensor.shape);
    EXPECT_EQ(text_of(*found), text_of(tensor));
  }
  EXPECT_EQ(file.find("none"), nullptr);
  EXPECT_EQ(file.metadata(), (Metadata{{"format", "pt"}, {"step", "10"}, {"xxh3", hash_bytes("ABCDEFGH12345678abc")}}));
}

TEST(Safetensors, ABitFlippedInTheDataIsFoundOut) {
  const TemporaryFolder folder;
  write_safetensors(folder / "a", std::array{view("w", "F32", {2}, "12345678")}, {});
  const auto good = read_file(folder / "a");
  for (size_t byte = good.size() - 8; byte < good.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      auto bad = good;
      bad[byte] = static_cast<char>(bad[byte] ^ (1 << bit));
      EXPECT_TRUE(contains(message_of<Error>([&] { parse(bad); }), "x.st: expected data with XXH3 \""));
    }
  }
}

TEST(Safetensors, LaysTensorsOutWidestFirstThenByNameWithAnAlignedHeader) {
  const TemporaryFolder folder;
  const std::array tensors{view("z", "F32", {1}, "zzzz"), view("u", "U8", {1}, "u"), view("a", "F32", {1}, "aaaa"),
                           view("l", "I64", {1}, "llllllll"), view("h", "BF16", {1}, "hh")};
  write_safetensors(folder / "a", tensors, {});
  const auto bytes = read_file(folder / "a");
  const std::string data = "llllllllaaaazzzzhhu";
  const std::string header =
      R"({"__metadata__":{"format":"pt","xxh3":")" + hash_bytes(data) +
      R"("},"l":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
      R"("a":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},"z":{"dtype":"F32","shape":[1],"data_offsets":[12,16]},)"
      R"("h":{"dtype":"BF16","shape":[1],"data_offsets":[16,18]},"u":{"dtype":"U8","shape":[1],"data_offsets":[18,19]}})";
  const std::string padding((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(bytes, file_with(header + padding, data));
}

TEST(Safetensors, OfNothingIsAFile) {
  const TemporaryFolder folder;
  write_safetensors(folder / "a", {}, {});
  EXPECT_TRUE(SafetensorsFile(folder / "a").tensors().empty());
  EXPECT_TRUE(parse(file_with("{}")).tensors.empty());
}

TEST(Safetensors, ReadsAnyOrderOfKeysAndTrailingSpaces) {
  const auto bytes = file_with(
      R"({"b":{"shape":[2],"data_offsets":[1,3],"dtype":"I8"},"a":{"dtype":"I8","shape":[],"data_offsets":[0,1]}}   )",
      "xyz");
  const auto content = parse(bytes);
  ASSERT_EQ(content.tensors.size(), 2u);
  EXPECT_EQ(text_of(content.tensors[0]), "x");
  EXPECT_EQ(text_of(content.tensors[1]), "yz");
}

TEST(Safetensors, HoldsSubByteTypesThatFillWholeBytes) {
  EXPECT_EQ(tensor_bytes("F4", std::vector<int64_t>{2, 3}, "w"), 3u);
  EXPECT_EQ(tensor_bytes("F6_E3M2", std::vector<int64_t>{4}, "w"), 3u);
  EXPECT_EQ(dtype_bits("F6_E2M3"), 6);
  EXPECT_EQ(dtype_bits("C128"), 0);
}

struct Broken {
  const char* name;
  std::string bytes;
  const char* message;
};

std::string one(std::string_view fields, std::string_view data = "") {
  return file_with("{\"w\":{" + std::string(fields) + "}}", data);
}

std::vector<Broken> broken_files() {
  const std::string huge("\xff\xff\xff\xff\xff\xff\xff\xff", 8);
  const std::string deep(200, '[');
  return {
      {"Empty", "", "x.st: expected at least 8 bytes, got 0; not a safetensors file or truncated"},
      {"SevenBytes", "1234567", "expected at least 8 bytes, got 7"},
      {"HeaderOverTheLimit", std::string("\x01\xe1\xf5\x05\0\0\0\0", 8),
       "expected a header of at most 100000000 bytes, got 100000001"},
      {"HeaderLengthOfAllOnes", huge + "{}", "expected a header of at most 100000000 bytes, got 18446744073709551615"},
      {"HeaderPastTheEnd", file_with("{}").substr(0, 9),
       "expected a header of 2 bytes, got 1 bytes after the length; the file is truncated"},
      {"EmptyHeader", file_with(""), "expected a header that begins with '{'"},
      {"LeadingSpace", file_with(" {}"), "expected a header that begins with '{'"},
      {"ByteOrderMark", file_with("\xEF\xBB\xBF{}"), "expected a header that begins with '{'"},
      {"Array", file_with("[]"), "expected a header that begins with '{'"},
      {"CutJson", file_with("{\"a\":"), "x.st: header: invalid JSON: parse error at line 1"},
      {"TextAfterJson", file_with("{} x"), "header: invalid JSON"},
      {"ZeroByteAfterJson", file_with(std::string("{}\0\0", 4)), "header: invalid JSON: zero byte at offset 2"},
      {"BrokenUtf8", file_with("{\"\xff\":1}"), "header: invalid JSON"},
      {"NumberOutOfRange", file_with("{\"a\":1e999}"), "header: invalid JSON"},
      {"DeepNesting", file_with("{\"a\":" + deep), "header: JSON nested deeper than 128 levels"},
      {"DuplicateTensor",
       file_with(
           R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"),
       "x.st: header: key \"a\" appears twice in one JSON object"},
      {"DuplicateField", one(R"("dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0])"),
       "key \"dtype\" appears twice"},
      {"DuplicateMetadata", file_with(R"({"__metadata__":{"k":"1","k":"2"}})"), "key \"k\" appears twice"},
      {"MetadataTwice", file_with(R"({"__metadata__":{},"__metadata__":{}})"), "key \"__metadata__\" appears twice"},
      {"MetadataArray", file_with(R"({"__metadata__":[]})"), "expected \"__metadata__\" to be an object, got array"},
      {"MetadataNumber", file_with(R"({"__metadata__":{"k":1}})"),
       "expected \"__metadata__\" to hold strings, got number under \"k\""},
      {"EntryNotAnObject", file_with(R"({"w":["U8",[0],[0,0]]})"), "x.st: tensor \"w\": expected an object, got array"},
      {"UnknownField", one(R"("dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1)"),
       "tensor \"w\": expected only dtype, shape and data_offsets, got \"x\""},
      {"NoDtype", one(R"("shape":[0],"data_offsets":[0,0])"),
       "tensor \"w\": expected \"dtype\" to be a string, got nothing"},
      {"NoShape", one(R"("dtype":"U8","data_offsets":[0,0])"), "expected \"shape\" to be an array, got nothing"},
      {"NoOffsets", one(R"("dtype":"U8","shape":[0])"), "expected \"data_offsets\" to be an array, got nothing"},
      {"DtypeNumber", one(R"("dtype":8,"shape":[0],"data_offsets":[0,0])"),
       "expected \"dtype\" to be a string, got number"},
      {"UnknownDtype", one(R"("dtype":"F31","shape":[0],"data_offsets":[0,0])"),
       "tensor \"w\": expected a dtype among BOOL, F4,"},
      {"NegativeSize", one(R"("dtype":"U8","shape":[-1],"data_offsets":[0,0])"),
       "expected \"shape\" to hold integers from 0 to 9223372036854775807, got -1"},
      {"FractionalSize", one(R"("dtype":"U8","shape":[1.0],"data_offsets":[0,1])", "a"), "got 1.0"},
      {"SizeOverInt64", one(R"("dtype":"U8","shape":[9223372036854775808,0],"data_offsets":[0,0])"),
       "got 9223372036854775808"},
      {"TextSize", one(R"("dtype":"U8","shape":["1"],"data_offsets":[0,1])", "a"), "got string"},
      {"ShapeOverflow", one(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"),
       "shape [4294967296, 4294967296] of F32 overflows 64 bits"},
      {"ElementSizeOverflow", one(R"("dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0])"),
       "of F64 overflows 64 bits"},
      {"SubByteRemainder", one(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])", "ab"),
       "F4 elements have 4 bits and shape [3] does not fill whole bytes"},
      {"OneOffset", one(R"("dtype":"U8","shape":[0],"data_offsets":[0])"),
       "expected \"data_offsets\" [begin, end] with begin ≤ end, got [0]"},
      {"ThreeOffsets", one(R"("dtype":"U8","shape":[0],"data_offsets":[0,0,0])"), "got [0, 0, 0]"},
      {"ReversedOffsets", one(R"("dtype":"U8","shape":[1],"data_offsets":[1,0])", "a"), "got [1, 0]"},
      {"NegativeOffset", one(R"("dtype":"U8","shape":[1],"data_offsets":[-1,0])", "a"),
       "expected \"data_offsets\" to hold integers from 0"},
      {"SizeAgainstShape", one(R"("dtype":"F32","shape":[2,2],"data_offsets":[0,12])", "123456789012"),
       "x.st: tensor \"w\": expected 16 bytes for F32 of shape [2, 2], got data_offsets [0, 12] of 12 bytes"},
      {"GapAtTheStart", one(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])", "ab"),
       "tensor \"w\": expected data_offsets to begin at 0, where the tensor before ends, got 1"},
      {"Gap",
       file_with(
           R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
           "abc"),
       "tensor \"b\": expected data_offsets to begin at 1, where the tensor before ends, got 2"},
      {"Overlap",
       file_with(
           R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
           "abc"),
       "tensor \"b\": expected data_offsets to begin at 2, where the tensor before ends, got 1"},
      {"SameBytesTwice",
       file_with(
           R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
           "ab"),
       "tensor \"b\": expected data_offsets to begin at 2, where the tensor before ends, got 0"},
      {"DataCutOff", one(R"("dtype":"U8","shape":[4],"data_offsets":[0,4])", "abc"),
       "tensor \"w\": expected data up to offset 4, got 3 data bytes; the file is truncated"},
      {"BytesAfterTheData", one(R"("dtype":"U8","shape":[1],"data_offsets":[0,1])", "ab"),
       "x.st: expected 1 data bytes as the header says, got 2"},
      {"EmptyTensorPastTheEnd", one(R"("dtype":"U8","shape":[0],"data_offsets":[9,9])"),
       "expected data_offsets to begin at 0"},
  };
}

class BrokenSafetensors : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenSafetensors, IsRefusedWithAMessage) {
  EXPECT_TRUE(contains(message_of<Error>([] { parse(GetParam().bytes); }), GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(EveryRule, BrokenSafetensors, ::testing::ValuesIn(broken_files()),
                         [](const auto& broken) { return broken.param.name; });

TEST(Safetensors, RefusesEveryTruncation) {
  const TemporaryFolder folder;
  write_safetensors(folder / "a", std::array{view("w", "F32", {2}, "12345678"), view("e", "F32", {0}, "")},
                    {{"k", "v"}});
  const auto bytes = read_file(folder / "a");
  ASSERT_NO_THROW(parse(bytes));
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_THROW(parse(bytes.substr(0, length)), Error) << length;
}

TEST(Safetensors, RefusesToWriteWhatCannotBeRead) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::vector<TensorView>& tensors, const Metadata& metadata = {}) {
    return message_of<Error>([&] { write_safetensors(folder / "a", tensors, metadata); });
  };
  EXPECT_TRUE(contains(refused({view("w", "U8", {1}, "a"), view("w", "I8", {1}, "b")}),
                       "tensor \"w\": two tensors have this name"));
  EXPECT_TRUE(contains(refused({view("__metadata__", "U8", {1}, "a")}), "the format reserves this name"));
  EXPECT_TRUE(
      contains(refused({view("w", "F32", {1}, "abc")}), "tensor \"w\": expected 4 bytes for F32 of shape [1], got 3"));
  EXPECT_TRUE(contains(refused({view("w", "U8", {-1}, "")}), "expected sizes ≥ 0, got shape [-1]"));
  EXPECT_TRUE(contains(refused({view("w", "Q5", {1}, "a")}), "got \"Q5\""));
  EXPECT_TRUE(contains(refused({view("\xff", "U8", {1}, "a")}), "a tensor name or metadata text is not valid UTF-8"));
  EXPECT_TRUE(contains(refused({}, {{"k", "\xff"}}), "not valid UTF-8"));
  EXPECT_TRUE(contains(refused({}, {{"format", "np"}}), "metadata \"format\": expected \"pt\", got \"np\""));
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(Safetensors, KeepsTheOldFileWhenTheDiskIsFull) {
  const TemporaryFolder folder;
  const auto path = folder / "a";
  write_safetensors(path, std::array{view("w", "U8", {3}, "old")}, {});
  const std::string data(100000, 'n');
  const int status = in_child([&] {
    limit_file_size(50000);
    write_safetensors(path, std::array{view("w", "U8", {100000}, data)}, {});
  });
  EXPECT_EQ(status, 1);
  EXPECT_EQ(text_of(*SafetensorsFile(path).find("w")), "old");
  EXPECT_EQ(folder.entries(), 1u);
}

}  // namespace
}  // namespace prism::io
