#include "prism/cli/output.h"

#include <cerrno>
#include <cstdio>

#include "prism/io/file.h"

namespace prism::cli {

namespace {

constexpr const char* kStandardOutput = "standard output";

}  // namespace

Output::Output(const std::string& path) {
  if (!path.empty() && path != "-") file_.emplace(path);
}

void Output::write(std::string_view bytes) {
  if (file_) {
    file_->write(bytes);
  } else if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size()) {
    io::throw_system_error("write", kStandardOutput, errno);
  }
}

void Output::finish() {
  if (file_) {
    file_->commit();
  } else if (std::fflush(stdout) != 0) {
    io::throw_system_error("write", kStandardOutput, errno);
  }
}

void check_writable(const std::filesystem::path& file) { const io::AtomicFile probe(file); }

}  // namespace prism::cli
