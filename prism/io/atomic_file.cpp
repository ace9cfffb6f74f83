#include "prism/io/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

#include "prism/io/error.h"

namespace prism::io {

namespace {

FileDescriptor create_beside(const std::filesystem::path& target) {
  static std::atomic<uint64_t> counter{0};
  for (;;) {
    auto path = target;
    path += fmt::format(".tmp-{}-{}", ::getpid(), counter++);
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) continue;  // left by a dead process that had our number
    return FileDescriptor(path, O_WRONLY | O_CREAT | O_EXCL);
  }
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& target) : target_(target) {
  if (!target.has_filename()) throw Error(fmt::format("'{}': expected a file name", target.string()));
  std::error_code ignored;
  if (std::filesystem::is_directory(target, ignored)) throw_system_error("write", target, EISDIR);
  if (const auto folder = target.parent_path(); !folder.empty() && !std::filesystem::is_directory(folder, ignored)) {
    throw Error(fmt::format("{}: cannot create: there is no folder {}", target.string(), folder.string()));
  }
  file_ = create_beside(target);
}

AtomicFile::~AtomicFile() {
  if (!committed_ && !file_.path().empty()) ::unlink(file_.path().c_str());
}

void AtomicFile::write(std::string_view bytes) { file_.write_all(bytes); }

void AtomicFile::commit() {
  file_.sync();
  file_.close();
  if (std::rename(file_.path().c_str(), target_.c_str()) != 0) throw_system_error("replace", target_, errno);
  committed_ = true;
  sync_folder(target_.parent_path());
}

void write_file_atomically(const std::filesystem::path& target, std::string_view bytes) {
  AtomicFile file(target);
  file.write(bytes);
  file.commit();
}

}  // namespace prism::io
