#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace prism::data {

class FormatReader;

// Turns files into documents. The extension decides how; it may be followed by `.gz` or `.zst`:
//   .jsonl .ndjson   one JSON object a line, its `text_field` a string; blank lines are skipped
//   .parquet         one document a row, from the string column `text_field` (not compressed as a whole file)
//                    In both, rows whose text is null are skipped and counted.
//   any other        text: documents are separated by lines that hold only `separator`; without one, the file is one
//                    document
// A document keeps its bytes as they are, including line ends and invalid UTF-8; only a byte-order mark at the start of
// a file is dropped. Documents that hold only blanks are skipped and counted.
struct ReaderOptions {
  std::string separator = "<|endoftext|>";  // empty: text files have no separators
  std::string text_field = "text";
  std::vector<std::string> extensions = {};  // within folders: only these (".py", ".txt.zst"); empty: all
  size_t piece_bytes = size_t{1} << 20;
  size_t max_line_bytes = size_t{64} << 20;  // the longest line of JSON; a line is held in memory
};

// A part of a document, at most `piece_bytes` long. Long documents come in several pieces. They are cut where the
// pre-split rules have a boundary (see cut.h), so that the concatenated tokens of the pieces are those of the whole.
struct Piece {
  std::string text;
  bool first = true;
  bool last = true;  // the document ends here
};

// The number of files in folders that are not read, by reason. A hidden folder counts once.
struct Skipped {
  int64_t hidden = 0;    // name begins with a dot
  int64_t filtered = 0;  // not among ReaderOptions::extensions
  int64_t binary = 0;    // a zero byte among the first 8 KiB, after decompression
  int64_t empty = 0;     // no bytes
  int64_t special = 0;   // neither a file nor a folder; a link to a folder or to nothing
};

enum class Format { Text, JsonLines, Parquet };

struct CorpusFile {
  std::filesystem::path path;
  std::string name;  // relative to the path that was given
  Format format = Format::Text;
  uint64_t bytes = 0;  // on disk
};

// The files of the given paths. Folders are walked in byte order of the relative names; links to folders are not
// followed. A file named directly must be readable text; within folders unsuitable files are skipped. An empty corpus
// is an error.
class Corpus {
 public:
  explicit Corpus(std::vector<std::string> paths, ReaderOptions options = {});

  struct Root {
    std::string path;  // as given
    std::vector<CorpusFile> files;
  };
  const std::vector<Root>& roots() const { return roots_; }
  const ReaderOptions& options() const { return options_; }
  const Skipped& skipped() const { return skipped_; }
  uint64_t bytes() const { return bytes_; }  // on disk
  int64_t files() const { return files_; }

 private:
  void add_folder(Root& root);
  void add_named_file(Root& root);
  void add_file(Root& root, CorpusFile file);

  std::vector<Root> roots_;
  ReaderOptions options_;
  Skipped skipped_;
  uint64_t bytes_ = 0;
  int64_t files_ = 0;
};

// The documents of a corpus, in order, with bounded memory. Every error names the file and the line or row.
//   Documents documents(corpus);
//   for (Piece piece; documents.next(piece);) …
class Documents {
 public:
  explicit Documents(const Corpus& corpus);  // `corpus` must outlive it
  ~Documents();

  bool next(Piece& piece);  // false at the end; throws prism::Error if the corpus holds no document at all

  const std::string& source() const { return source_; }  // the file of the last piece
  size_t root() const { return root_; }                  // and the index of its root in the corpus
  uint64_t consumed() const;                             // bytes of files read so far, of corpus.bytes()
  int64_t documents() const { return documents_; }       // begun so far
  int64_t empty_documents() const { return empty_; }     // skipped so far
  int64_t null_rows() const { return null_rows_; }       // skipped in the files that are done

 private:
  bool open_next();

  const Corpus& corpus_;
  size_t root_ = 0;
  size_t file_ = 0;
  std::unique_ptr<FormatReader> reader_;
  std::string source_;
  uint64_t finished_bytes_ = 0;
  uint64_t current_bytes_ = 0;
  int64_t documents_ = 0;
  int64_t empty_ = 0;
  int64_t null_rows_ = 0;
};

}  // namespace prism::data
