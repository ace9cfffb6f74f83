#include "prism/report/event_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <chrono>
#include <string>

#include "prism/io/error.h"
#include "prism/report/crc32c.h"
#include "prism/report/protobuf.h"

namespace prism::report {

namespace {

namespace fs = std::filesystem;

// Field numbers of tensorflow/core/util/event.proto and tensorflow/core/framework/summary.proto, tensor.proto.
namespace event {
enum { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
}
namespace session_log {
enum { kStatus = 1 };
enum { kStart = 1 };
}  // namespace session_log
namespace summary {
enum { kValue = 1 };
enum { kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9 };
enum { kPluginData = 1, kPluginName = 1 };
}  // namespace summary
namespace tensor {
enum { kDtype = 1, kShape = 2, kStringValue = 8 };
enum { kDimension = 2, kSize = 1 };
enum { kDtypeString = 7 };
}  // namespace tensor

constexpr std::string_view kPrefix = "events.out.tfevents.";

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == 0) return "localhost";
  std::string text = name.data();
  std::ranges::replace(text, '/', '_');
  return text;
}

int64_t seconds_of(std::string_view file_name) {
  int64_t seconds = 0;
  if (file_name.starts_with(kPrefix)) {
    std::from_chars(file_name.data() + kPrefix.size(), file_name.data() + file_name.size(), seconds);
  }
  return seconds;
}

fs::path next_path(const fs::path& folder) {
  auto seconds = static_cast<int64_t>(wall_time());
  for (const auto& entry : fs::directory_iterator(folder)) {
    seconds = std::max(seconds, seconds_of(entry.path().filename().string()) + 1);
  }
  return folder / fmt::format("{}{:010}.{}.{}", kPrefix, seconds, host_name(), getpid());
}

io::FileDescriptor create_file(const fs::path& folder) {
  io::make_folders(folder);
  return {next_path(folder), O_WRONLY | O_CREAT | O_EXCL | O_APPEND};
}

ProtobufMessage event_at(int64_t step) {
  return ProtobufMessage().float64(event::kWallTime, wall_time()).integer(event::kStep, step);
}

ProtobufMessage plugin(std::string_view name) {
  const auto data = ProtobufMessage().bytes(summary::kPluginName, name);
  return ProtobufMessage().message(summary::kPluginData, data);
}

ProtobufMessage string_tensor(std::string_view value) {
  const auto one = ProtobufMessage().integer(tensor::kSize, 1);
  return ProtobufMessage()
      .integer(tensor::kDtype, tensor::kDtypeString)
      .message(tensor::kShape, ProtobufMessage().message(tensor::kDimension, one))
      .bytes(tensor::kStringValue, value);
}

void append_masked_crc(std::string& record, std::string_view bytes) {
  append_little_endian(record, std::rotr(crc32c(bytes), 15) + 0xa282ead8u, 4);
}

}  // namespace

EventWriter::EventWriter(const fs::path& folder, int64_t first_step) : file_(create_file(folder)) {
  write_record(event_at(0).bytes(event::kFileVersion, "brain.Event:2").encoded());
  const auto start = ProtobufMessage().integer(session_log::kStatus, session_log::kStart);
  write_record(event_at(first_step).message(event::kSessionLog, start).encoded());
}

void EventWriter::scalars(int64_t step, const Scalars& values) {
  ProtobufMessage summary;
  for (const auto& [tag, number] : values) {
    summary.message(
        summary::kValue,
        ProtobufMessage().bytes(summary::kTag, tag).float32(summary::kSimpleValue, static_cast<float>(number)));
  }
  write_record(event_at(step).message(event::kSummary, summary).encoded());
}

void EventWriter::text(std::string_view tag, int64_t step, std::string_view markdown) {
  const auto value = ProtobufMessage()
                         .bytes(summary::kTag, tag)
                         .message(summary::kTensor, string_tensor(markdown))
                         .message(summary::kMetadata, plugin("text"));
  write_record(event_at(step).message(event::kSummary, ProtobufMessage().message(summary::kValue, value)).encoded());
}

void EventWriter::write_record(std::string_view event) {
  std::string record;
  append_little_endian(record, event.size(), 8);
  append_masked_crc(record, record);
  record += event;
  append_masked_crc(record, event);
  file_.write_all(record);
}

}  // namespace prism::report
