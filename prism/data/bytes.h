#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace prism::data {

// A stream of decoded bytes. Memory is bounded by a few buffers, whatever the length of the stream; a zstd frame also
// needs its window (at most 128 MiB, as in `zstd --long=27`).
class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // Fills `out` and returns the number of bytes; fewer than out.size() means the end of the stream.
  virtual size_t read(std::span<char> out) = 0;
  virtual uint64_t consumed() const = 0;  // bytes taken from the file so far, before any decoding
  virtual const std::string& name() const = 0;
};

std::unique_ptr<ByteStream> open_file(const std::filesystem::path& path);

// Decoders throw an error with the file's name for truncated and corrupt input. Consecutive gzip members or zstd frames
// are one stream, as in the gzip and zstd programs.
std::unique_ptr<ByteStream> decode_gzip(std::unique_ptr<ByteStream> compressed);
std::unique_ptr<ByteStream> decode_zstd(std::unique_ptr<ByteStream> compressed);

// Opens a file and decodes it by its extension: .gz, .zst or neither.
std::unique_ptr<ByteStream> open_decoded(const std::filesystem::path& path);

// `name.txt.zst` → `name.txt`; any other path unchanged.
std::filesystem::path without_compression(const std::filesystem::path& path);

}  // namespace prism::data
