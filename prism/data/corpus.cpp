#include "prism/data/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "prism/data/bytes.h"
#include "prism/data/cut.h"
#include "prism/data/format_reader.h"
#include "prism/io/error.h"

namespace prism::data {

namespace fs = std::filesystem;

namespace {

constexpr size_t kProbeBytes = 8192;

Format format_of(const fs::path& path) {
  const fs::path name = without_compression(path);
  const std::string extension = name.extension().string();
  if (extension == ".jsonl" || extension == ".ndjson") return Format::JsonLines;
  if (extension != ".parquet") return Format::Text;
  if (name == path) return Format::Parquet;
  throw Error(
      fmt::format("{}: expected a .parquet file not compressed as a whole; decompress it first", path.string()));
}

bool is_hidden(const fs::path& path) { return path.filename().native().starts_with('.'); }

bool has_extension(const fs::path& path, const std::vector<std::string>& extensions) {
  const std::string name = path.filename().string();
  const std::string bare = without_compression(path).filename().string();
  return extensions.empty() || std::ranges::any_of(extensions, [&](const std::string& extension) {
           return name.ends_with(extension) || bare.ends_with(extension);
         });
}

// The offset of a zero byte among the first bytes of the text, or npos.
size_t find_zero_byte(const fs::path& path) {
  std::array<char, kProbeBytes> probe;
  const size_t got = open_decoded(path)->read(probe);
  return std::string_view(probe.data(), got).find('\0');
}

// Moves on to the next entry. If a folder cannot be read, the error appears when the iterator would enter it.
void advance(fs::recursive_directory_iterator& entry) {
  const fs::path path = entry->path();
  std::error_code unreadable;
  entry.increment(unreadable);
  if (unreadable) throw Error(fmt::format("{}: cannot read: {}", path.string(), unreadable.message()));
}

void check_options(const ReaderOptions& options) {
  if (options.separator.find('\n') != std::string::npos) {
    throw Error("data: expected a document separator of one line, got one with a line break");
  }
  if (options.text_field.empty()) throw Error("data: expected the name of the text field, got an empty one");
  for (const std::string& extension : options.extensions) {
    if (extension.starts_with('.')) continue;
    throw Error(fmt::format("data: expected an extension such as \".txt\", got \"{}\"", extension));
  }
  if (options.piece_bytes < 16) {
    throw Error(fmt::format("data: expected pieces of at least 16 bytes, got {}", options.piece_bytes));
  }
}

bool is_blank(const Piece& piece) {
  return piece.first && piece.last && piece.text.find_first_not_of(" \t\r\n\v\f") == std::string::npos;
}

std::unique_ptr<FormatReader> open_reader(const CorpusFile& file, const ReaderOptions& options) {
  switch (file.format) {
    case Format::Parquet:
      return read_parquet(file.path, options);
    case Format::JsonLines:
      return read_json_lines(open_decoded(file.path), options);
    case Format::Text:
      break;
  }
  return read_text(open_decoded(file.path), options);
}

}  // namespace

Corpus::Corpus(std::vector<std::string> paths, ReaderOptions options) : options_(std::move(options)) {
  check_options(options_);
  if (paths.empty()) throw Error("data: expected the path of a file or folder of text, got none");
  for (std::string& path : paths) {
    Root root{std::move(path), {}};
    try {
      fs::is_directory(root.path) ? add_folder(root) : add_named_file(root);
    } catch (const fs::filesystem_error& error) {
      throw Error(fmt::format("{}: cannot read: {}", error.path1().string(), error.code().message()));
    }
    roots_.push_back(std::move(root));
  }
}

void Corpus::add_named_file(Root& root) {
  const fs::path path = root.path;
  if (!fs::exists(path)) throw Error(fmt::format("{}: expected a file or folder of text, found nothing", root.path));
  if (!fs::is_regular_file(path)) throw Error(fmt::format("{}: expected a file or a folder, got neither", root.path));
  const Format format = format_of(path);
  if (fs::file_size(path) == 0) throw Error(fmt::format("{}: expected text, got an empty file", root.path));
  const size_t zero = format == Format::Text ? find_zero_byte(path) : std::string_view::npos;
  if (zero != std::string_view::npos) {
    throw Error(fmt::format("{}: expected text, got binary data (a zero byte at offset {})", root.path, zero));
  }
  add_file(root, {path, path.filename().string(), format, fs::file_size(path)});
}

void Corpus::add_folder(Root& root) {
  using Walk = fs::recursive_directory_iterator;
  for (Walk entry(root.path); entry != Walk(); advance(entry)) {
    const fs::path& path = entry->path();
    if (is_hidden(path)) {
      ++skipped_.hidden;
      entry.disable_recursion_pending();
      continue;
    }
    if (entry->is_directory() && !entry->is_symlink()) continue;
    std::error_code broken_link;
    if (!fs::is_regular_file(path, broken_link)) {
      ++skipped_.special;
    } else if (!has_extension(path, options_.extensions)) {
      ++skipped_.filtered;
    } else if (fs::file_size(path) == 0) {
      ++skipped_.empty;
    } else {
      const Format format = format_of(path);
      if (format == Format::Text && find_zero_byte(path) != std::string_view::npos) {
        ++skipped_.binary;
      } else {
        add_file(root, {path, path.lexically_relative(root.path).generic_string(), format, fs::file_size(path)});
      }
    }
  }
  std::ranges::sort(root.files, {}, &CorpusFile::name);
  if (!root.files.empty()) return;
  throw Error(
      fmt::format("{}: expected a folder with text files, got none (skipped: {} hidden, {} of other extensions, "
                  "{} binary, {} empty, {} special)",
                  root.path, skipped_.hidden, skipped_.filtered, skipped_.binary, skipped_.empty, skipped_.special));
}

void Corpus::add_file(Root& root, CorpusFile file) {
  bytes_ += file.bytes;
  ++files_;
  root.files.push_back(std::move(file));
}

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

}  // namespace prism::data
