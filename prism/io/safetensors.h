#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "prism/io/file.h"

namespace prism::io {

// The safetensors format: u64 little-endian header length n, n bytes of JSON padded with spaces, then the data.
// The JSON maps each tensor name to {"dtype", "shape", "data_offsets": [begin, end)}, offsets counted from the first
// data byte; "__metadata__" maps strings to strings. Data is row-major and little-endian.
struct TensorView {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;  // not always aligned in files written by others: copy, do not dereference as float
  size_t bytes = 0;
};

// The format's names of the types that Prism writes. Other files may have more of them.
inline constexpr const char *kFloat16 = "F16", *kBfloat16 = "BF16", *kFloat32 = "F32", *kFloat64 = "F64",
                            *kInt64 = "I64";

using Metadata = std::map<std::string, std::string>;

// Bits of one element; 0 for an unknown name.
int64_t dtype_bits(std::string_view dtype);

// Bytes of a row-major tensor. Throws prism::Error for an unknown dtype, a negative size, an overflow, or a sub-byte
// type (F4, F6_…) that does not fill whole bytes. `where` begins the message.
size_t tensor_bytes(std::string_view dtype, std::span<const int64_t> shape, std::string_view where);

// Writes all tensors or nothing (AtomicFile). Tensors are sorted by dtype, widest first, then by name, and the header
// is padded to 8 bytes, as in the reference implementation: equal tensors give equal files. Adds to the metadata
// "format": "pt" (another value under that key is refused) and "xxh3", the hash of all data bytes.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                       const Metadata& metadata);

struct SafetensorsContent {
  std::vector<TensorView> tensors;  // in file order; views of the given bytes
  Metadata metadata;
};

// Checks every rule of the format: header at most 100 MB and within the file, a strict JSON object (no duplicate keys),
// known dtypes, sizes that match the shapes, contiguous offsets from 0 to the end of the file; if the metadata have
// "xxh3", data with that hash. Throws prism::Error with `where`, the tensor, what was expected and what was found.
SafetensorsContent parse_safetensors(std::span<const std::byte> bytes, std::string_view where);

// A memory-mapped file. Views stay valid when the object is moved, until it is destroyed.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::vector<TensorView>& tensors() const { return content_.tensors; }
  const TensorView* find(std::string_view name) const;  // null if there is none
  const Metadata& metadata() const { return content_.metadata; }

 private:
  MappedFile file_;
  SafetensorsContent content_;
  std::unordered_map<std::string_view, size_t> index_;  // keys view content_'s names, which a move leaves in place
};

}  // namespace prism::io
