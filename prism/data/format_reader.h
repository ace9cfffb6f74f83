#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "prism/data/bytes.h"
#include "prism/data/corpus.h"

namespace prism::data {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// The documents of one file, in pieces; blank documents included.
class FormatReader {
 public:
  virtual ~FormatReader() = default;
  virtual bool next(Piece& piece) = 0;
  virtual uint64_t consumed() const = 0;            // bytes of the file used so far, at most its size
  int64_t null_rows() const { return null_rows_; }  // skipped so far

 protected:
  int64_t null_rows_ = 0;
};

std::unique_ptr<FormatReader> read_text(std::unique_ptr<ByteStream> bytes, const ReaderOptions& options);
std::unique_ptr<FormatReader> read_json_lines(std::unique_ptr<ByteStream> bytes, const ReaderOptions& options);
std::unique_ptr<FormatReader> read_parquet(const std::filesystem::path& path, const ReaderOptions& options);

// Hands out a document held in memory piece by piece.
class HeldDocument {
 public:
  explicit HeldDocument(size_t piece_bytes) : piece_bytes_(piece_bytes) {}

  void hold(std::string document);
  bool next(Piece& piece);  // false if nothing is left

 private:
  size_t piece_bytes_;
  std::string document_;
  size_t given_ = 0;
  bool holds_ = false;
};

}  // namespace prism::data
