#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "prism/io/file.h"
#include "prism/io/json_fields.h"

namespace prism::io {

// Appends to a file with one JSON object per line. Each object has an integer "step" that never decreases. `append`
// hands the whole line to the operating system before it returns, so a killed process loses none; `sync` makes lines
// survive a power failure. Numbers that are not finite are written as null, since JSON cannot express them.
class JsonLinesWriter {
 public:
  // Continues after `step`: cuts off an unfinished last line and all lines of later steps. Creates the file if it is
  // missing. Throws, and cuts nothing, if a finished line is no such object: the file is damaged.
  static JsonLinesWriter resume(const std::filesystem::path& path, int64_t step);

  void append(const nlohmann::json& object);
  void sync();
  std::optional<int64_t> last_step() const { return last_step_; }
  int64_t lines() const { return lines_; }  // in the file

 private:
  JsonLinesWriter(FileDescriptor file, int64_t size, int64_t lines, std::optional<int64_t> last_step);

  FileDescriptor file_;
  int64_t size_;  // in bytes
  int64_t lines_;
  std::optional<int64_t> last_step_;
};

using JsonLineVisitor = std::function<void(const nlohmann::json& object, int64_t line)>;

// Calls `visit` for each line in order; lines are counted from 1. Throws prism::Error "where:line: …" if a line is not
// a JSON object. Returns false if the last line has no newline, because it is still being written or its writer died;
// that line is not visited.
bool visit_json_lines(std::string_view text, std::string_view where, const JsonLineVisitor& visit);

// The finished lines of a file, each as a struct with `fields`.
template <class T = nlohmann::json>
std::vector<T> read_json_lines(const std::filesystem::path& path) {
  std::vector<T> lines;
  visit_json_lines(read_file(path), path.string(), [&](const nlohmann::json& object, int64_t line) {
    lines.push_back(from_json<T>(object, path.string() + ":" + std::to_string(line)));
  });
  return lines;
}

}  // namespace prism::io
