#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "prism/io/file.h"

namespace prism::io {

// A file of one JSON object per line, appended to as a run goes on. Each object has an integer "step" that never falls.
// A line reaches the operating system whole before `append` returns, so a killed process loses none; `sync` makes them
// survive a power cut. Numbers that are not finite are written as null, JSON having no others.
class JsonLinesWriter {
 public:
  static JsonLinesWriter create(const std::filesystem::path& path);  // the file must not exist

  // Goes on after `step`: cuts off an unfinished last line and all lines of later steps. A missing file is created.
  // A finished line that is no such object is damage, not an interruption: it is refused and nothing is cut.
  static JsonLinesWriter resume(const std::filesystem::path& path, int64_t step);

  void append(const nlohmann::json& object);
  void sync();
  std::optional<int64_t> last_step() const { return last_step_; }

 private:
  JsonLinesWriter(FileDescriptor file, int64_t size, std::optional<int64_t> last_step);

  FileDescriptor file_;
  int64_t size_;
  std::optional<int64_t> last_step_;
};

using JsonLineVisitor = std::function<void(const nlohmann::json& object, int64_t line)>;

// Calls `visit` for each line in order, lines counted from 1. A line that is no JSON object is an error "where:line:
// …". Returns false when the last line has no newline: it is still being written, or its writer died. It is not
// visited.
bool visit_json_lines(std::string_view text, std::string_view where, const JsonLineVisitor& visit);

std::vector<nlohmann::json> read_json_lines(const std::filesystem::path& path);

}  // namespace prism::io
