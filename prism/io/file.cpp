#include "prism/io/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "prism/io/error.h"

namespace prism::io {

namespace {

bool path_is_at_fault(int error_number) {
  switch (error_number) {
    case ENOENT:
    case EACCES:
    case EPERM:
    case EISDIR:
    case ENOTDIR:
    case EROFS:
    case ENAMETOOLONG:
    case ELOOP:
    case ENXIO:
    case EINVAL:
      return true;
    default:
      return false;
  }
}

struct OpenedFile {
  FileDescriptor file;
  size_t size;
};

OpenedFile open_regular(const std::filesystem::path& path) {
  FileDescriptor file(path, O_RDONLY | O_NONBLOCK);  // a named pipe must not block the open
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) throw_system_error("read", path, errno);
  if (!S_ISREG(info.st_mode)) {
    throw Error(fmt::format("{}: expected a regular file, got {}", path.string(),
                            S_ISDIR(info.st_mode) ? "a folder" : "a pipe, socket or device"));
  }
  return {std::move(file), static_cast<size_t>(info.st_size)};
}

}  // namespace

void throw_system_error(std::string_view action, const std::filesystem::path& path, int error_number) {
  const char* reason = error_number == ENOSPC ? "the disk is full" : std::strerror(error_number);
  const std::string message = fmt::format("{}: cannot {}: {}", path.string(), action, reason);
  if (path_is_at_fault(error_number)) throw Error(message);
  throw std::runtime_error(message);
}

void make_folders(const std::filesystem::path& path) {
  std::error_code failed;
  std::filesystem::create_directories(path, failed);
  if (failed) throw_system_error("make the folder", path, failed.value());
  if (!std::filesystem::is_directory(path))
    throw Error(fmt::format("{}: cannot make the folder: a file of that name exists", path.string()));
}

FileDescriptor::FileDescriptor(const std::filesystem::path& path, int flags, int mode) : path_(path) {
  do {
    fd_ = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd_ < 0 && errno == EINTR);
  if (fd_ < 0) throw_system_error(flags & O_CREAT ? "create" : "open", path, errno);
}

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

void FileDescriptor::write_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_system_error("write", path_, errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

void FileDescriptor::sync() {
  if (::fsync(fd_) != 0) throw_system_error("flush to disk", path_, errno);
}

void FileDescriptor::close() {
  // The descriptor is released even when close fails, so it is never closed twice.
  if (::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) throw_system_error("close", path_, errno);
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  const auto [file, size] = open_regular(path);
  if (size == 0) return;  // mmap refuses an empty range
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) throw_system_error("map into memory", path, errno);
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

std::string read_file(const std::filesystem::path& path) {
  const auto [file, size] = open_regular(path);
  std::string text(size, '\0');
  size_t have = 0;
  while (have < size) {
    const ssize_t got = ::read(file.get(), text.data() + have, size - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_system_error("read", path, errno);
    if (got == 0) break;
    have += static_cast<size_t>(got);
  }
  text.resize(have);
  return text;
}

void sync_file(const std::filesystem::path& path) { FileDescriptor(path, O_RDONLY).sync(); }

void sync_folder(const std::filesystem::path& path) {
  FileDescriptor(path.empty() ? "." : path, O_RDONLY | O_DIRECTORY).sync();
}

bool is_abandoned(const std::filesystem::path& path) {
  try {
    return ::flock(FileDescriptor(path, O_RDONLY).get(), LOCK_EX | LOCK_NB) == 0;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace prism::io
