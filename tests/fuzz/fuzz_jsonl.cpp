// Any bytes as JSON lines: refused with prism::Error or read as documents in well-formed pieces.
#include <cstdlib>

#include "prism/data/format_reader.h"
#include "prism/io/error.h"
#include "tests/data/memory_stream.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace prism::data;
  ReaderOptions options;
  options.piece_bytes = 16;
  options.max_line_bytes = 4096;
  try {
    const auto reader = read_json_lines(from_memory({reinterpret_cast<const char*>(data), size}, "input"), options);
    bool begins = true;
    for (Piece piece; reader->next(piece); begins = piece.last) {
      if (piece.first != begins || piece.text.size() > options.piece_bytes) std::abort();
      if (piece.text.empty() && !(piece.first && piece.last)) std::abort();
    }
    if (!begins || reader->consumed() != size) std::abort();
  } catch (const prism::Error&) {
  }
  return 0;
}
