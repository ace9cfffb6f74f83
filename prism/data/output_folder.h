#pragma once

#include <filesystem>

#include "prism/io/file.h"

namespace prism::data {

// A folder to write into, made when missing and locked against other writers while the object lives. Of the folders
// that were made, those left empty in the end are removed again.
class OutputFolder {
 public:
  explicit OutputFolder(const std::filesystem::path& path);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

 private:
  std::filesystem::path path_;
  int64_t made_ = 0;  // how many of the path's last folders are ours
  io::FileDescriptor lock_;
};

}  // namespace prism::data
