#pragma once

#include <filesystem>
#include <string_view>

#include "prism/io/file.h"

namespace prism::io {

// Replaces `target` atomically: bytes go to `<target>.tmp-<pid>-<n>` in the same folder; `commit` flushes them to disk,
// renames the file over the target and flushes the folder. Until then the old target stays as it was. Destroying the
// object without a commit (an exception, a full disk) removes the temporary file. A killed process leaves it behind,
// and the next writer of the same target removes it. A live writer holds a lock (flock) on its own.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& target);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::string_view bytes);
  void commit();

 private:
  std::filesystem::path target_;
  FileDescriptor file_;
  bool committed_ = false;
};

// Renames a file or folder. Throws an error that names it on failure.
void move_path(const std::filesystem::path& from, const std::filesystem::path& to);

void write_file_atomically(const std::filesystem::path& target, std::string_view bytes);

}  // namespace prism::io
