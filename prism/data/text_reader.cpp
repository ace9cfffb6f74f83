#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "prism/data/cut.h"
#include "prism/data/format_reader.h"

namespace prism::data {

namespace {

class TextReader : public FormatReader {
 public:
  TextReader(std::unique_ptr<ByteStream> bytes, const ReaderOptions& options)
      : bytes_(std::move(bytes)),
        separator_(options.separator),
        limit_(options.piece_bytes),
        needed_(limit_ + separator_.size() + 3),  // a separator that begins at `limit_` is seen whole, with "\r\n"
        buffer_(needed_ + limit_, '\0') {
    fill();
    if (view().starts_with(kByteOrderMark)) begin_ += kByteOrderMark.size();
  }

  bool next(Piece& piece) override {
    fill();
    const std::string_view text = view();
    if (text.empty() && first_) return false;
    const Separator found = find_separator(text);
    if (found.begin <= limit_) {
      give(piece, text.substr(0, found.begin), /*last=*/true);
      begin_ += found.length;
      line_start_ = true;
    } else if (text.size() > limit_) {
      // The rest is never empty: the cut is followed by neither the end nor a separator.
      give(piece, text.substr(0, cut_position(text, limit_)), /*last=*/false);
      line_start_ = piece.text.back() == '\n';
    } else {
      give(piece, text, /*last=*/true);
    }
    return true;
  }

  uint64_t consumed() const override { return bytes_->consumed(); }

 private:
  struct Separator {
    size_t begin = std::string_view::npos;
    size_t length = 0;  // with its line end
  };

  std::string_view view() const { return std::string_view(buffer_).substr(begin_, end_ - begin_); }

  void fill() {
    if (end_ - begin_ >= needed_ || ended_) return;
    std::copy(buffer_.begin() + static_cast<ptrdiff_t>(begin_), buffer_.begin() + static_cast<ptrdiff_t>(end_),
              buffer_.begin());
    end_ -= begin_;
    begin_ = 0;
    const size_t wanted = buffer_.size() - end_;
    const size_t got = bytes_->read({buffer_.data() + end_, wanted});
    end_ += got;
    ended_ = got < wanted;
  }

  void give(Piece& piece, std::string_view text, bool last) {
    piece.text.assign(text);
    piece.first = first_;
    piece.last = last;
    first_ = last;
    begin_ += text.size();
  }

  // The first line that holds only the separator.
  Separator find_separator(std::string_view text) const {
    if (separator_.empty()) return {};
    for (size_t at = text.find(separator_); at != std::string_view::npos; at = text.find(separator_, at + 1)) {
      if (at > limit_) break;
      if (at == 0 ? !line_start_ : text[at - 1] != '\n') continue;
      const std::string_view after = text.substr(at + separator_.size());
      const size_t length = separator_.size();
      if (after.starts_with('\n')) return {at, length + 1};
      if (after.starts_with("\r\n")) return {at, length + 2};
      if (after.empty()) return {at, length};
    }
    return {};
  }

  std::unique_ptr<ByteStream> bytes_;
  std::string separator_;
  size_t limit_;
  size_t needed_;
  std::string buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  bool ended_ = false;
  bool first_ = true;  // the next piece begins a document
  bool line_start_ = true;
};

}  // namespace

std::unique_ptr<FormatReader> read_text(std::unique_ptr<ByteStream> bytes, const ReaderOptions& options) {
  return std::make_unique<TextReader>(std::move(bytes), options);
}

}  // namespace prism::data
