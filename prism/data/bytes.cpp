#include "prism/data/bytes.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "prism/io/file.h"

namespace prism::data {

namespace {

class FileStream : public ByteStream {
 public:
  explicit FileStream(const std::filesystem::path& path) : file_(path, O_RDONLY), name_(path.string()) {}

  size_t read(std::span<char> out) override {
    size_t have = 0;
    while (have < out.size()) {
      const ssize_t got = ::read(file_.get(), out.data() + have, out.size() - have);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) io::throw_system_error("read", file_.path(), errno);
      if (got == 0) break;
      have += static_cast<size_t>(got);
    }
    consumed_ += have;
    return have;
  }
  uint64_t consumed() const override { return consumed_; }
  const std::string& name() const override { return name_; }

 private:
  io::FileDescriptor file_;
  std::string name_;
  uint64_t consumed_ = 0;
};

}  // namespace

std::unique_ptr<ByteStream> open_file(const std::filesystem::path& path) { return std::make_unique<FileStream>(path); }

std::unique_ptr<ByteStream> open_decoded(const std::filesystem::path& path) {
  auto bytes = open_file(path);
  if (path.extension() == ".gz") return decode_gzip(std::move(bytes));
  if (path.extension() == ".zst") return decode_zstd(std::move(bytes));
  return bytes;
}

std::filesystem::path without_compression(const std::filesystem::path& path) {
  const bool compressed = path.extension() == ".gz" || path.extension() == ".zst";
  return compressed ? path.parent_path() / path.stem() : path;
}

}  // namespace prism::data
