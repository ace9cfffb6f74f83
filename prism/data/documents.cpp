#include <fmt/format.h>

#include <utility>

#include "prism/data/cut.h"
#include "prism/data/format_reader.h"
#include "prism/data/reader.h"
#include "prism/io/error.h"

namespace prism::data {

void HeldDocument::hold(std::string document) {
  document_ = std::move(document);
  given_ = 0;
  holds_ = true;
}

bool HeldDocument::next(Piece& piece) {
  if (!holds_) return false;
  const std::string_view rest = std::string_view(document_).substr(given_);
  piece.first = given_ == 0;
  piece.last = rest.size() <= piece_bytes_;
  piece.text.assign(piece.last ? rest : rest.substr(0, cut_position(rest, piece_bytes_)));
  given_ += piece.text.size();
  if (piece.last) {
    holds_ = false;
    document_ = {};
  }
  return true;
}

namespace {

bool is_blank(const Piece& piece) {
  return piece.first && piece.last && piece.text.find_first_not_of(" \t\r\n\v\f") == std::string::npos;
}

std::unique_ptr<FormatReader> open_reader(const CorpusFile& file, const ReaderOptions& options) {
  switch (file.format) {
    case Format::kParquet:
      return read_parquet(file.path, options);
    case Format::kJsonLines:
      return read_json_lines(open_decoded(file.path), options);
    case Format::kText:
      break;
  }
  return read_text(open_decoded(file.path), options);
}

}  // namespace

Documents::Documents(const Corpus& corpus) : corpus_(corpus) {}

Documents::~Documents() = default;

bool Documents::next(Piece& piece) {
  while (reader_ || open_next()) {
    if (!reader_->next(piece)) {
      null_rows_ += reader_->null_rows();
      reader_.reset();
      finished_bytes_ += current_bytes_;
      continue;
    }
    if (!is_blank(piece)) {
      documents_ += piece.first ? 1 : 0;
      return true;
    }
    ++empty_;
  }
  if (documents_ == 0) {
    throw Error(fmt::format("{}: expected at least one document, got {} files that hold only blanks",
                            corpus_.roots().front().path, corpus_.files()));
  }
  return false;
}

uint64_t Documents::consumed() const { return finished_bytes_ + (reader_ ? reader_->consumed() : 0); }

bool Documents::open_next() {
  const auto& roots = corpus_.roots();
  while (root_ < roots.size() && file_ == roots[root_].files.size()) {
    ++root_;
    file_ = 0;
  }
  if (root_ == roots.size()) return false;
  const CorpusFile& file = roots[root_].files[file_++];
  source_ = file.path.string();
  current_bytes_ = file.bytes;
  reader_ = open_reader(file, corpus_.options());
  return true;
}

}  // namespace prism::data
