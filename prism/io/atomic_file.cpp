#include "prism/io/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <vector>

#include "prism/io/error.h"

namespace prism::io {

namespace {

constexpr std::string_view kTemporary = ".tmp-";

void remove_abandoned(const std::filesystem::path& target) {
  const auto folder = target.has_parent_path() ? target.parent_path() : std::filesystem::path(".");
  const auto prefix = target.filename().string() + std::string(kTemporary);
  std::vector<std::filesystem::path> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.path().filename().string().starts_with(prefix) && entry.is_regular_file(ignored))
      found.push_back(entry.path());
  }
  for (const auto& path : found) {
    if (is_abandoned(path)) ::unlink(path.c_str());
  }
}

// Locks a new file. Returns false if another process considered it abandoned before that.
bool keep(const FileDescriptor& file) {
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  struct stat status {};
  return ::fstat(file.get(), &status) == 0 && status.st_nlink > 0;
}

FileDescriptor create_beside(const std::filesystem::path& target) {
  static std::atomic<uint64_t> counter{0};
  for (;;) {
    auto path = target;
    path += fmt::format("{}{}-{}", kTemporary, ::getpid(), counter++);
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) continue;  // left by a dead process that had our number
    FileDescriptor file(path, O_WRONLY | O_CREAT | O_EXCL);
    if (keep(file)) return file;
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
  remove_abandoned(target);
  file_ = create_beside(target);
}

AtomicFile::~AtomicFile() {
  if (!committed_ && !file_.path().empty()) ::unlink(file_.path().c_str());
}

void AtomicFile::write(std::string_view bytes) { file_.write_all(bytes); }

void AtomicFile::commit() {
  file_.sync();
  move_path(file_.path(), target_);
  committed_ = true;
  file_.close();  // not earlier, because it releases the lock
  sync_folder(target_.parent_path());
}

void move_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) throw_system_error("be renamed to " + to.string(), from, errno);
}

void write_file_atomically(const std::filesystem::path& target, std::string_view bytes) {
  AtomicFile file(target);
  file.write(bytes);
  file.commit();
}

}  // namespace prism::io
