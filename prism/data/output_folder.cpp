#include "prism/data/output_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include "prism/io/error.h"

namespace prism::data {

namespace fs = std::filesystem;

OutputFolder::OutputFolder(const fs::path& path) : path_(fs::absolute(path).lexically_normal()) {
  if (!path_.has_filename()) path_ = path_.parent_path();
  for (fs::path folder = path_; !fs::exists(folder); folder = folder.parent_path()) ++made_;
  std::error_code failed;
  fs::create_directories(path_, failed);
  if (failed || !fs::is_directory(path_)) {
    throw Error(fmt::format("{}: cannot make the folder: {}", path.string(),
                            failed ? failed.message() : "a file of that name exists"));
  }
  lock_ = io::FileDescriptor(path_, O_RDONLY | O_DIRECTORY);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    throw Error(fmt::format(
        "{}: another process is writing to this folder; wait for it to end or choose another folder", path.string()));
  }
}

OutputFolder::~OutputFolder() {
  std::error_code not_empty;
  fs::path folder = path_;
  for (int64_t i = 0; i < made_ && fs::remove(folder, not_empty); ++i) folder = folder.parent_path();
}

}  // namespace prism::data
