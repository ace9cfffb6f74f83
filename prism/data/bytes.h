#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace prism::data {

// A stream of decoded bytes. Memory stays within a few buffers, whatever the length of the stream; only a zstd frame
// asks for its window besides (at most 128 MiB, that of `zstd --long=27`).
class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // Fills `out` as far as the stream goes: fewer bytes than asked for mean its end.
  virtual size_t read(std::span<char> out) = 0;
  virtual uint64_t consumed() const = 0;  // bytes taken from the file so far, before any decoding
  virtual const std::string& name() const = 0;
};

std::unique_ptr<ByteStream> open_file(const std::filesystem::path& path);
std::unique_ptr<ByteStream> from_memory(std::string_view bytes, std::string name);  // `bytes` must outlive the stream

// Decoders refuse truncated and corrupt input with the file's name. Gzip members and zstd frames that follow each
// other are one stream, as the gzip and zstd programs read them.
std::unique_ptr<ByteStream> decode_gzip(std::unique_ptr<ByteStream> compressed);
std::unique_ptr<ByteStream> decode_zstd(std::unique_ptr<ByteStream> compressed);

// Opens a file and decodes it by its extension: .gz, .zst or neither.
std::unique_ptr<ByteStream> open_decoded(const std::filesystem::path& path);

// `name.txt.zst` → `name.txt`; any other path as it is.
std::filesystem::path without_compression(const std::filesystem::path& path);

}  // namespace prism::data
