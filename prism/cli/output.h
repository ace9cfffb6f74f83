#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "prism/io/atomic_file.h"

namespace prism::cli {

// Where a command writes its result: standard output, or a file that appears whole or not at all.
class Output {
 public:
  explicit Output(const std::string& path);  // empty or "-": standard output

  void write(std::string_view bytes);
  void finish();  // everything is where it should be, or an exception says what is wrong

 private:
  std::optional<io::AtomicFile> file_;
};

// Throws now what writing this file would throw after the work is done: no such folder, no permission, a folder there.
void check_writable(const std::filesystem::path& file);

}  // namespace prism::cli
