#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prism/io/file.h"

namespace prism::report {

// Pairs of tag and value. TensorBoard shows the tag "train/loss" as "loss" in the section "train".
using Scalars = std::vector<std::pair<std::string, double>>;

// Writes a TensorBoard event file, `events.out.tfevents.SECONDS.HOST.PID`, in `folder`. Creates the folder if needed.
// The file is a sequence of little-endian records
//   length (u64), masked CRC-32C of the length (u32), an encoded tensorflow.Event, masked CRC-32C of the event (u32)
// with masked(c) = rotate_right(c, 15) + 0xa282ead8. Each call hands its whole record to the operating system before it
// returns. A killed process thus leaves at most one incomplete record, which TensorBoard treats as the end of the file.
//
// A resumed run opens a new file. TensorBoard reads files in the order of their names, so the new name sorts after all
// existing ones. The file starts with SessionLog START at `first_step`, which makes TensorBoard drop earlier events of
// steps ≥ first_step. Pass the first step that will be written, for new and resumed runs alike.
class EventWriter {
 public:
  EventWriter(const std::filesystem::path& folder, int64_t first_step);

  void scalars(int64_t step, const Scalars& values);                         // writes one record of float32 values
  void text(std::string_view tag, int64_t step, std::string_view markdown);  // `markdown` must be valid UTF-8
  void sync() { file_.sync(); }

  const std::filesystem::path& path() const { return file_.path(); }

 private:
  void write_record(std::string_view event);

  io::FileDescriptor file_;
};

}  // namespace prism::report
