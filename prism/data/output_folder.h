#pragma once

#include <filesystem>
#include <functional>

#include "prism/io/file.h"

namespace prism::data {

// A folder that is made when missing. Of the folders that were made, those left empty in the end are removed again.
class MadeFolder {
 public:
  explicit MadeFolder(const std::filesystem::path& path);
  ~MadeFolder();
  MadeFolder(const MadeFolder&) = delete;
  MadeFolder& operator=(const MadeFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int64_t made_ = 0;  // how many of the path's last folders are ours
};

// A folder to write into, locked against other writers while the object lives.
class OutputFolder {
 public:
  explicit OutputFolder(const std::filesystem::path& path);
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

 private:
  MadeFolder folder_;
  io::FileDescriptor lock_;
};

// While it lives, this process alone prepares something in a folder, which is made when missing. Where another does so,
// calls `wait` and waits for its turn. What was made and left empty is removed again.
class FolderTurn {
 public:
  FolderTurn(const std::filesystem::path& path, const std::function<void()>& wait);
  ~FolderTurn();
  FolderTurn(const FolderTurn&) = delete;
  FolderTurn& operator=(const FolderTurn&) = delete;

  bool waited() const { return waited_; }

 private:
  MadeFolder folder_;
  io::FileDescriptor lock_;
  bool waited_ = false;
};

}  // namespace prism::data
