#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "prism/data/format_reader.h"
#include "prism/io/error.h"

namespace prism::data {

namespace {

using nlohmann::json;

constexpr size_t kLineReadBytes = size_t{1} << 18;

// Extracts one string field from the events of a JSON line without building the rest.
class FieldFinder {
 public:
  explicit FieldFinder(const std::string& field) : field_(field) {}

  bool null() {
    if (depth_ > 0 && wanted_) is_null = true;
    return depth_ > 0 || other("null");
  }
  bool boolean(bool) { return other("a boolean"); }
  bool number_integer(json::number_integer_t) { return other("a number"); }
  bool number_unsigned(json::number_unsigned_t) { return other("a number"); }
  bool number_float(json::number_float_t, const std::string&) { return other("a number"); }
  bool binary(json::binary_t&) { return other("binary data"); }

  bool string(std::string& value) {
    if (depth_ == 0) return other("a string");
    if (wanted_) {
      text = std::move(value);
      wanted_ = false;
    }
    return true;
  }
  bool start_object(size_t) { return begin("an object"); }
  bool start_array(size_t) { return begin("an array"); }
  bool end_object() { return end(); }
  bool end_array() { return end(); }
  bool key(std::string& name) {
    wanted_ = depth_ == 1 && name == field_;
    if (wanted_ && seen_) return fail(fmt::format("the field \"{}\" twice", field_));
    seen_ = seen_ || wanted_;
    return true;
  }
  bool parse_error(size_t, const std::string&, const json::exception& error) {
    const std::string_view message = error.what();
    const size_t code_end = message.find("] ");
    return fail(
        fmt::format("invalid JSON ({})", message.substr(code_end == std::string_view::npos ? 0 : code_end + 2)));
  }

  std::string problem() const {
    if (!problem_.empty()) return problem_;
    return text || is_null ? "" : "an object without it";
  }

  std::optional<std::string> text;
  bool is_null = false;  // the field is there, but has no text

 private:
  bool fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }
  bool other(std::string_view kind) {
    if (depth_ == 0) return fail(fmt::format("{} in place of the object", kind));
    return wanted_ ? fail(fmt::format("{} in that field", kind)) : true;
  }
  bool begin(std::string_view kind) {
    const bool is_line = depth_ == 0 && kind == "an object";
    if (!is_line && !other(kind)) return false;
    ++depth_;
    return true;
  }
  bool end() {
    --depth_;
    return true;
  }

  const std::string& field_;
  int64_t depth_ = 0;
  bool wanted_ = false;  // the next value is that of the field
  bool seen_ = false;
  std::string problem_;
};

class JsonLinesReader : public FormatReader {
 public:
  JsonLinesReader(std::unique_ptr<ByteStream> bytes, const ReaderOptions& options)
      : bytes_(std::move(bytes)),
        field_(options.text_field),
        max_line_bytes_(options.max_line_bytes),
        document_(options.piece_bytes) {}

  bool next(Piece& piece) override {
    while (!document_.next(piece)) {
      std::string_view line;
      if (!next_line(line)) return false;
      if (line_number_ == 1 && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      if (auto text = text_of(line)) {
        document_.hold(std::move(*text));
      } else {
        ++null_rows_;
      }
    }
    return true;
  }

  uint64_t consumed() const override { return bytes_->consumed(); }

 private:
  std::optional<std::string> text_of(std::string_view line) const {
    FieldFinder finder(field_);
    json::sax_parse(line, &finder);
    if (const std::string problem = finder.problem(); !problem.empty()) {
      throw Error(fmt::format("{} line {}: expected a JSON object with a string field \"{}\", got {}", bytes_->name(),
                              line_number_, field_, problem));
    }
    return std::move(finder.text);
  }

  bool next_line(std::string_view& line) {
    size_t searched = begin_;
    for (;;) {
      const void* newline = std::memchr(buffer_.data() + searched, '\n', end_ - searched);
      const size_t stop = newline ? static_cast<size_t>(static_cast<const char*>(newline) - buffer_.data()) : end_;
      if (newline || (ended_ && begin_ < end_)) {
        ++line_number_;
        check_length(stop - begin_);
        line = std::string_view(buffer_).substr(begin_, stop - begin_);
        begin_ = newline ? stop + 1 : end_;
        return true;
      }
      if (ended_) return false;
      searched = end_ - begin_;
      read_more();
    }
  }

  void check_length(size_t bytes) const {
    if (bytes <= max_line_bytes_) return;
    throw Error(fmt::format("{} line {}: expected at most {} bytes in a line, got more", bytes_->name(), line_number_,
                            max_line_bytes_));
  }

  // Moves the partial line to the front of the buffer and reads more after it. The buffer grows with the longest line.
  void read_more() {
    buffer_.erase(0, begin_);
    end_ -= begin_;
    begin_ = 0;
    if (end_ > max_line_bytes_) {
      ++line_number_;
      check_length(end_);
    }
    const size_t wanted = std::max(kLineReadBytes, end_);
    buffer_.resize(end_ + wanted);
    const size_t got = bytes_->read({buffer_.data() + end_, wanted});
    ended_ = got < wanted;
    end_ += got;
  }

  std::unique_ptr<ByteStream> bytes_;
  std::string field_;
  size_t max_line_bytes_;
  HeldDocument document_;
  std::string buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  bool ended_ = false;
  int64_t line_number_ = 0;
};

}  // namespace

std::unique_ptr<FormatReader> read_json_lines(std::unique_ptr<ByteStream> bytes, const ReaderOptions& options) {
  return std::make_unique<JsonLinesReader>(std::move(bytes), options);
}

}  // namespace prism::data
