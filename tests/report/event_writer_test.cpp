#include "prism/report/event_writer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "prism/io/atomic_file.h"
#include "prism/io/error.h"
#include "prism/report/crc32c.h"
#include "prism/report/protobuf.h"
#include "tests/io/temporary_folder.h"

namespace prism::report {
namespace {

using io::TemporaryFolder;

template <typename T>
T read_at(std::string_view bytes, size_t offset) {
  T value{};
  EXPECT_LE(offset + sizeof(T), bytes.size());
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// Returns the events of a file and checks every length and checksum.
std::vector<std::string> records(const std::filesystem::path& path) {
  const auto bytes = io::read_file(path);
  const auto masked = [](std::string_view text) { return std::rotr(crc32c(text), 15) + 0xa282ead8u; };
  std::vector<std::string> events;
  for (size_t at = 0; at < bytes.size();) {
    const auto length = read_at<uint64_t>(bytes, at);
    EXPECT_EQ(read_at<uint32_t>(bytes, at + 8), masked(std::string_view(bytes).substr(at, 8)));
    events.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(read_at<uint32_t>(bytes, at + 12 + length), masked(events.back()));
    at += 16 + length;
  }
  return events;
}

TEST(Crc32c, GivesThePublishedValues) {  // RFC 3720, appendix B.4
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
}

TEST(ProtobufMessage, EncodesEachKindOfFieldAsTheSpecificationDoes) {
  EXPECT_EQ(ProtobufMessage().integer(1, 150).encoded(), "\x08\x96\x01");
  EXPECT_EQ(ProtobufMessage().integer(1, -1).encoded(), "\x08" + std::string(9, '\xff') + "\x01");
  EXPECT_EQ(ProtobufMessage().bytes(2, "testing").encoded(), "\x12\x07testing");
  EXPECT_EQ(ProtobufMessage().message(3, ProtobufMessage().integer(1, 150)).encoded(), "\x1a\x03\x08\x96\x01");
  EXPECT_EQ(ProtobufMessage().float32(1, 1.0f).encoded(), std::string("\x0d\0\0\x80\x3f", 5));
  EXPECT_EQ(ProtobufMessage().float64(1, 1.0).encoded(), std::string("\x09\0\0\0\0\0\0\xf0\x3f", 9));
  EXPECT_EQ(ProtobufMessage().integer(16, 1).encoded(), "\x80\x01\x01");
}

TEST(EventWriter, WritesTheVersionTheSessionAndOneRecordPerCall) {
  const TemporaryFolder folder;
  EventWriter writer(folder / "run", 1);
  writer.scalars(1, {{"train/loss", 2.5}, {"train/lr", 0.02}});
  writer.text("config", 1, "name = \"prism\"");
  const auto events = records(writer.path());
  ASSERT_EQ(events.size(), 4u);
  EXPECT_TRUE(io::contains(events[0], "brain.Event:2"));
  EXPECT_TRUE(io::contains(events[1], "\x3a\x02\x08\x01"));  // session_log { status: START }
  EXPECT_TRUE(io::contains(events[2], "train/loss"));
  EXPECT_TRUE(io::contains(events[2], "train/lr"));
  EXPECT_TRUE(io::contains(events[3], "name = \"prism\""));
}

TEST(EventWriter, IsReadableAfterEveryCallWithoutAnyFlush) {
  const TemporaryFolder folder;
  EventWriter writer(folder.path(), 0);
  for (int64_t step = 0; step < 5; ++step) {
    writer.scalars(step, {{"loss", 1.0}});
    EXPECT_EQ(records(writer.path()).size(), static_cast<size_t>(step + 3));
  }
}

TEST(EventWriter, NamesEachFileAfterTheOnesAlreadyThere) {
  const TemporaryFolder folder;
  std::vector<std::string> names;
  for (int i = 0; i < 4; ++i) names.push_back(EventWriter(folder.path(), i).path().filename().string());
  io::write_file_atomically(folder / "events.out.tfevents.9000000000.elsewhere.1", "");  // a clock ahead of ours
  names.push_back(EventWriter(folder.path(), 4).path().filename().string());
  EXPECT_TRUE(std::ranges::is_sorted(names));
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  EXPECT_GT(names.back(), "events.out.tfevents.9000000000.elsewhere.1");
}

TEST(EventWriter, SaysWhereItCannotWrite) {
  const TemporaryFolder folder;
  io::write_file_atomically(folder / "file", "x");
  EXPECT_TRUE(
      io::contains(io::message_of<Error>([&] { EventWriter(folder / "file", 0); }), (folder / "file").string() + ": "));
}

}  // namespace
}  // namespace prism::report
