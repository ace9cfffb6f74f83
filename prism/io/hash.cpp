#include "prism/io/hash.h"

#define XXH_INLINE_ALL
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>

#include "prism/io/file.h"

namespace prism::io {

struct Hasher::State {
  XXH3_state_t xxh3;
};

Hasher::Hasher() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh3); }
Hasher::~Hasher() = default;

void Hasher::update(std::string_view bytes) { XXH3_128bits_update(&state_->xxh3, bytes.data(), bytes.size()); }

std::string Hasher::digest() const {
  const auto hash = XXH3_128bits_digest(&state_->xxh3);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string hash_bytes(std::string_view bytes) {
  Hasher hasher;
  hasher.update(bytes);
  return hasher.digest();
}

FileHash hash_file(const std::filesystem::path& path) {
  const FileDescriptor file(path, O_RDONLY);
  Hasher hasher;
  std::string buffer(size_t{1} << 20, '\0');
  uint64_t total = 0;
  for (;;) {
    const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_system_error("read", path, errno);
    if (got == 0) return {total, hasher.digest()};
    hasher.update(std::string_view(buffer).substr(0, static_cast<size_t>(got)));
    total += static_cast<uint64_t>(got);
  }
}

}  // namespace prism::io
