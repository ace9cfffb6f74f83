#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prism/io/file.h"

namespace prism::report {

using Scalars =
    std::vector<std::pair<std::string, double>>;  // tag, value; "train/loss" is "loss" in the section "train"

// Writes what TensorBoard shows of a run: a file `events.out.tfevents.SECONDS.HOST.PID` in `folder`, which is made when
// it is missing. The file is a sequence of records
//   length (u64), masked CRC32C of the length (u32), an encoded tensorflow.Event, masked CRC32C of the event (u32)
// in little endian, masked(c) = rotate_right(c, 15) + 0xa282ead8. A record reaches the operating system whole before a
// call returns, so that a killed process leaves at most one unfinished record, which TensorBoard takes for the end.
//
// A resumed run opens another file. Readers take the files in the order of their names, so a new one is always named
// after those already there, and it begins with SessionLog START at `first_step`, at which TensorBoard forgets what the
// earlier files say of steps ≥ first_step: give the first step that will be written, whether the run is new or resumed.
class EventWriter {
 public:
  EventWriter(const std::filesystem::path& folder, int64_t first_step);

  void scalars(int64_t step, const Scalars& values);                         // one record; values are kept as float32
  void text(std::string_view tag, int64_t step, std::string_view markdown);  // valid UTF-8
  void sync() { file_.sync(); }

  const std::filesystem::path& path() const { return file_.path(); }

 private:
  void write_record(std::string_view event);

  io::FileDescriptor file_;
};

}  // namespace prism::report
