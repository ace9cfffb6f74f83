#include "prism/io/json_lines.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "prism/io/error.h"
#include "prism/io/json.h"

namespace prism::io {

namespace {

using nlohmann::json;

json parse_line(std::string_view line, std::string_view where, int64_t number) {
  const auto position = fmt::format("{}:{}", where, number);
  auto object = parse_json(line, position);
  if (!object.is_object()) {
    throw Error(fmt::format("{}: expected a JSON object, got {}", position, object.type_name()));
  }
  return object;
}

int64_t step_of(const json& object, std::string_view position) {
  const auto step = object.find("step");
  const bool integer = step != object.end() && step->is_number_integer();
  if (!integer || (step->is_number_unsigned() && step->get<uint64_t>() > INT64_MAX)) {
    throw Error(fmt::format("{}: expected an integer \"step\" within 63 bits, got {}", position,
                            step == object.end() ? "none" : quote(step->dump())));
  }
  return step->get<int64_t>();
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct Prefix {
  std::string_view text;
  int64_t lines;
  std::optional<int64_t> last_step;
};

// The lines up to and including `step`. Steps never decrease, so only the lines to remove and one to keep are read.
Prefix prefix_up_to(std::string_view text, int64_t step, std::string_view where) {
  text = text.substr(0, text.rfind('\n') + 1);
  auto number = std::ranges::count(text, '\n');
  for (; !text.empty(); --number) {
    const auto line_begin = text.substr(0, text.size() - 1).rfind('\n') + 1;
    const auto line = text.substr(line_begin, text.size() - 1 - line_begin);
    const auto line_step = step_of(parse_line(line, where, number), fmt::format("{}:{}", where, number));
    if (line_step <= step) return {text, number, line_step};
    text = text.substr(0, line_begin);
  }
  return {text, 0, std::nullopt};
}

}  // namespace

JsonLinesWriter::JsonLinesWriter(FileDescriptor file, int64_t size, int64_t lines, std::optional<int64_t> last_step)
    : file_(std::move(file)), size_(size), lines_(lines), last_step_(last_step) {}

JsonLinesWriter JsonLinesWriter::resume(const std::filesystem::path& path, int64_t step) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    return {FileDescriptor(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND), 0, 0, std::nullopt};
  int64_t size = 0, lines = 0;
  std::optional<int64_t> last_step;
  {
    const MappedFile old(path);  // unmapped before the file shrinks
    const auto kept = prefix_up_to(as_text(old.bytes()), step, path.string());
    size = static_cast<int64_t>(kept.text.size());
    lines = kept.lines;
    last_step = kept.last_step;
  }
  FileDescriptor file(path, O_WRONLY | O_APPEND);
  if (::ftruncate(file.get(), size) != 0) throw_system_error("shorten", path, errno);
  return {std::move(file), size, lines, last_step};
}

void JsonLinesWriter::append(const json& object) {
  const auto step = step_of(object, file_.path().string());
  if (last_step_ && step < *last_step_) {
    throw Error(fmt::format("{}: expected step ≥ {}, got {}", file_.path().string(), *last_step_, step));
  }
  const std::string line = object.dump() + '\n';
  try {
    file_.write_all(line);
  } catch (...) {
    // Half a line followed by a whole one would make both unreadable. If this fails too, `resume` cuts it off.
    [[maybe_unused]] const int ignored = ::ftruncate(file_.get(), size_);
    throw;
  }
  size_ += static_cast<int64_t>(line.size());
  ++lines_;
  last_step_ = step;
}

void JsonLinesWriter::sync() { file_.sync(); }

bool visit_json_lines(std::string_view text, std::string_view where, const JsonLineVisitor& visit) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos) return false;
    visit(parse_line(text.substr(0, end), where, number), number);
    text.remove_prefix(end + 1);
  }
  return true;
}

}  // namespace prism::io
