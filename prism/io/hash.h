#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace prism::io {

// XXH3, 128 bits, as 32 lower-case hexadecimal digits in the canonical order (that of `xxhsum -H2`).
class Hasher {
 public:
  Hasher();
  ~Hasher();

  void update(std::string_view bytes);
  std::string digest() const;  // of all bytes so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string hash_bytes(std::string_view bytes);

struct FileHash {
  uint64_t bytes = 0;
  std::string xxh3;

  bool operator==(const FileHash&) const = default;
};

// Reads the file piece by piece: memory stays small, and a disk error becomes an exception.
FileHash hash_file(const std::filesystem::path& path);

}  // namespace prism::io
