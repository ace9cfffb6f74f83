#pragma once

#include <filesystem>
#include <functional>

#include "prism/io/file.h"

namespace prism::io {

// Creates a folder if it is missing. Created folders that are still empty at the end are removed again.
class MadeFolder {
 public:
  explicit MadeFolder(const std::filesystem::path& path);
  ~MadeFolder();
  MadeFolder(const MadeFolder&) = delete;
  MadeFolder& operator=(const MadeFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int64_t made_ = 0;  // the number of trailing folders of the path that were created here
};

// A folder to write into, locked against other writers while the object lives.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& path);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  MadeFolder folder_;
  FileDescriptor lock_;
};

// Gives this process the exclusive right to prepare something in a folder while the object lives. Creates the folder if
// it is missing. If another process has the right, calls `wait` and waits for its turn. Created folders that are still
// empty at the end are removed again.
class FolderTurn {
 public:
  FolderTurn(const std::filesystem::path& path, const std::function<void()>& wait);
  ~FolderTurn();
  FolderTurn(const FolderTurn&) = delete;
  FolderTurn& operator=(const FolderTurn&) = delete;

  bool waited() const { return waited_; }

 private:
  MadeFolder folder_;
  FileDescriptor lock_;
  bool waited_ = false;
};

}  // namespace prism::io
