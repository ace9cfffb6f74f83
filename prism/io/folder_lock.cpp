#include "prism/io/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "prism/io/error.h"

namespace prism::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLockName = ".preparing";

// Returns true if the path still refers to this file: the previous owner removes it at the end of its turn.
bool is_current(const FileDescriptor& file) {
  struct stat ours {
  }, theirs{};
  return fstat(file.get(), &ours) == 0 && stat(file.path().c_str(), &theirs) == 0 && ours.st_ino == theirs.st_ino;
}

void wait_for(const FileDescriptor& file) {
  while (::flock(file.get(), LOCK_EX) != 0) {
    if (errno != EINTR) throw_system_error("lock", file.path(), errno);
  }
}

}  // namespace

MadeFolder::MadeFolder(const fs::path& path) : path_(fs::absolute(path).lexically_normal()) {
  if (!path_.has_filename()) path_ = path_.parent_path();
  for (fs::path folder = path_; !fs::exists(folder); folder = folder.parent_path()) ++made_;
  make_folders(path_);
}

MadeFolder::~MadeFolder() {
  std::error_code not_empty;
  fs::path folder = path_;
  for (int64_t i = 0; i < made_ && fs::remove(folder, not_empty); ++i) folder = folder.parent_path();
}

FolderLock::FolderLock(const fs::path& path) : folder_(path) {
  lock_ = FileDescriptor(folder_.path(), O_RDONLY | O_DIRECTORY);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    throw Error(fmt::format(
        "{}: another process is writing to this folder; wait for it to end or choose another folder", path.string()));
  }
}

FolderTurn::FolderTurn(const fs::path& path, const std::function<void()>& wait) : folder_(path) {
  do {
    std::error_code ignored;
    fs::create_directories(folder_.path(), ignored);  // the previous owner may have removed it
    lock_ = FileDescriptor(folder_.path() / kLockName, O_RDWR | O_CREAT);
    if (::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) continue;
    if (errno != EWOULDBLOCK && errno != EINTR) throw_system_error("lock", lock_.path(), errno);
    if (!waited_) wait();
    waited_ = true;
    wait_for(lock_);
  } while (!is_current(lock_));
}

FolderTurn::~FolderTurn() { ::unlink(lock_.path().c_str()); }

}  // namespace prism::io
