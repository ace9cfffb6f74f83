#pragma once

#include <filesystem>

#include "prism/io/file.h"

namespace prism::data {

// A folder to write into, made when missing and locked against other writers while the object lives. Unless `keep` was
// called, the folders that were made are removed again, as far as they are empty.
class OutputFolder {
 public:
  explicit OutputFolder(const std::filesystem::path& path);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  void keep() { kept_ = true; }

 private:
  std::filesystem::path path_;
  int64_t made_ = 0;  // how many of the path's last folders are ours
  bool kept_ = false;
  io::FileDescriptor lock_;
};

}  // namespace prism::data
