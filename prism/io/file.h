#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace prism::io {

// Throws for a failed system call: prism::Error if the path itself is at fault (missing, forbidden, a folder …),
// std::runtime_error otherwise (full disk, input/output error). `action` completes "cannot …".
[[noreturn]] void throw_system_error(std::string_view action, const std::filesystem::path& path, int error_number);

// Makes a folder and its parents, if they do not exist. Throws as above.
void make_folders(const std::filesystem::path& path);

class FileDescriptor {
 public:
  FileDescriptor() = default;
  FileDescriptor(const std::filesystem::path& path, int flags, int mode = 0666);  // always adds O_CLOEXEC
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  int get() const { return fd_; }
  const std::filesystem::path& path() const { return path_; }

  void write_all(std::string_view bytes);
  void sync();   // fsync
  void close();  // throws on errors, which the destructor cannot do

 private:
  int fd_ = -1;
  std::filesystem::path path_;
};

// A regular file mapped read-only. The bytes stay valid when the object is moved, until it is destroyed.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

std::string read_file(const std::filesystem::path& path);
void sync_file(const std::filesystem::path& path);
void sync_folder(const std::filesystem::path& path);

// Returns true if no process holds a lock (flock) on the file or folder, so that it may be removed. Returns false if
// this cannot be determined: no permission, or no locks on this file system.
bool is_abandoned(const std::filesystem::path& path);

}  // namespace prism::io
