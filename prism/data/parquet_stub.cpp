#include <fmt/format.h>

#include "prism/data/format_reader.h"
#include "prism/io/error.h"

namespace prism::data {

// Linked instead of parquet_reader.cpp if the build found no Arrow.
std::unique_ptr<FormatReader> read_parquet(const std::filesystem::path& path, const ReaderOptions&) {
  throw Error(
      fmt::format("{}: this build of Prism cannot read Parquet, because it found no Arrow library; install the Python "
                  "package pyarrow for the interpreter PRISM_PYTHON and build again",
                  path.string()));
}

}  // namespace prism::data
