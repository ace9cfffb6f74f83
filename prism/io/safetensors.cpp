#include "prism/io/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "prism/io/atomic_file.h"
#include "prism/io/error.h"
#include "prism/io/hash.h"
#include "prism/io/json.h"

namespace prism::io {

namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

using nlohmann::json;

constexpr uint64_t kMaxHeader = 100'000'000;
constexpr size_t kLengthBytes = sizeof(uint64_t);
constexpr const char* kHash = "xxh3";

struct Dtype {
  std::string_view name;
  int64_t bits;
};

// Narrowest first, in the order of the reference implementation, whose writer sorts tensors by it.
constexpr std::array<Dtype, 22> kDtypes{{
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6},  {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8},  {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {kFloat16, 16}, {kBfloat16, 16}, {"I32", 32},        {"U32", 32},        {kFloat32, 32},
    {"C64", 64},    {kFloat64, 64}, {kInt64, 64},    {"U64", 64},
}};

const Dtype* find_dtype(std::string_view name) {
  const auto found = std::ranges::find(kDtypes, name, &Dtype::name);
  return found == kDtypes.end() ? nullptr : &*found;
}

std::string in_tensor(std::string_view where, std::string_view name) {
  return fmt::format("{}: tensor {}", where, quote(name));
}

std::string shape_text(std::span<const int64_t> shape) {
  constexpr size_t kShown = 16;
  const bool cut = shape.size() > kShown;
  return fmt::format("[{}{}]", fmt::join(shape.first(cut ? kShown : shape.size()), ", "), cut ? ", …" : "");
}

// --- writing ---

std::vector<const TensorView*> in_file_order(std::span<const TensorView> tensors) {
  std::vector<const TensorView*> order;
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::ranges::sort(order, [](const TensorView* a, const TensorView* b) {
    const Dtype *x = find_dtype(a->dtype), *y = find_dtype(b->dtype);
    return x != y ? x > y : a->name < b->name;
  });
  return order;
}

void check_writable(std::span<const TensorView> tensors, const std::string& where) {
  std::vector<std::string_view> names;
  for (const auto& tensor : tensors) {
    const auto who = in_tensor(where, tensor.name);
    if (tensor.name == "__metadata__") throw Error(fmt::format("{}: the format reserves this name", who));
    const size_t expected = tensor_bytes(tensor.dtype, tensor.shape, who);
    if (tensor.bytes != expected) {
      throw Error(fmt::format("{}: expected {} bytes for {} of shape {}, got {}", who, expected, tensor.dtype,
                              shape_text(tensor.shape), tensor.bytes));
    }
    names.push_back(tensor.name);
  }
  std::ranges::sort(names);
  if (const auto twice = std::ranges::adjacent_find(names); twice != names.end()) {
    throw Error(fmt::format("{}: two tensors have this name", in_tensor(where, *twice)));
  }
}

std::string_view as_text(const void* data, size_t bytes) { return {static_cast<const char*>(data), bytes}; }

std::string hash_of(std::span<const TensorView* const> order) {
  Hasher hasher;
  for (const auto* tensor : order) hasher.update(as_text(tensor->data, tensor->bytes));
  return hasher.digest();
}

std::string header_text(std::span<const TensorView* const> order, Metadata metadata, const std::string& where) {
  const auto& format = metadata.try_emplace("format", "pt").first->second;
  if (format != "pt")
    throw Error(fmt::format("{}: metadata \"format\": expected \"pt\", got {}", where, quote(format)));
  metadata[kHash] = hash_of(order);
  nlohmann::ordered_json header = {{"__metadata__", metadata}};
  size_t offset = 0;
  for (const auto* tensor : order) {
    const size_t end = offset + tensor->bytes;
    // push_back instead of header[name] =: ordered_json searches linearly, and the names are known to differ.
    header.get_ref<nlohmann::ordered_json::object_t&>().emplace_back(
        tensor->name,
        nlohmann::ordered_json{{"dtype", tensor->dtype}, {"shape", tensor->shape}, {"data_offsets", {offset, end}}});
    offset = end;
  }
  try {
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    if (text.size() > kMaxHeader) {
      throw Error(fmt::format("{}: header of {} bytes exceeds the format's {}", where, text.size(), kMaxHeader));
    }
    return text;
  } catch (const json::type_error&) {
    throw Error(fmt::format("{}: a tensor name or metadata text is not valid UTF-8", where));
  }
}

// --- reading ---

std::string_view header_of(std::span<const std::byte> bytes, std::string_view where) {
  if (bytes.size() < kLengthBytes) {
    throw Error(fmt::format("{}: expected at least {} bytes, got {}; not a safetensors file or truncated", where,
                            kLengthBytes, bytes.size()));
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMaxHeader) {
    throw Error(fmt::format("{}: expected a header of at most {} bytes, got {}; not a safetensors file", where,
                            kMaxHeader, length));
  }
  if (length > bytes.size() - kLengthBytes) {
    throw Error(fmt::format("{}: expected a header of {} bytes, got {} bytes after the length; the file is truncated",
                            where, length, bytes.size() - kLengthBytes));
  }
  const auto header = as_text(bytes.data() + kLengthBytes, length);
  if (!header.starts_with('{')) throw Error(fmt::format("{}: expected a header that begins with '{{'", where));
  return header;
}

const json& member(const json& entry, const char* key, json::value_t type, const std::string& who) {
  const auto found = entry.find(key);
  const char* expected = type == json::value_t::array ? "an array" : "a string";
  if (found == entry.end()) throw Error(fmt::format("{}: expected \"{}\" to be {}, got nothing", who, key, expected));
  if (found->type() != type) {
    throw Error(fmt::format("{}: expected \"{}\" to be {}, got {}", who, key, expected, found->type_name()));
  }
  return *found;
}

std::vector<int64_t> integers(const json& array, const char* key, const std::string& who) {
  std::vector<int64_t> values;
  for (const auto& value : array) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX) {
      throw Error(fmt::format("{}: expected \"{}\" to hold integers from 0 to {}, got {}", who, key, INT64_MAX,
                              value.is_number() ? value.dump() : value.type_name()));
    }
    values.push_back(value.get<int64_t>());
  }
  return values;
}

struct Entry {
  TensorView view;
  size_t begin = 0, end = 0;
};

Entry read_entry(const std::string& name, const json& json_entry, std::string_view where) {
  const auto who = in_tensor(where, name);
  if (!json_entry.is_object()) throw Error(fmt::format("{}: expected an object, got {}", who, json_entry.type_name()));
  for (const auto& item : json_entry.items()) {
    if (item.key() != "dtype" && item.key() != "shape" && item.key() != "data_offsets") {
      throw Error(fmt::format("{}: expected only dtype, shape and data_offsets, got {}", who, quote(item.key())));
    }
  }
  Entry entry;
  entry.view.name = name;
  entry.view.dtype = member(json_entry, "dtype", json::value_t::string, who).get<std::string>();
  entry.view.shape = integers(member(json_entry, "shape", json::value_t::array, who), "shape", who);
  const auto& offsets_json = member(json_entry, "data_offsets", json::value_t::array, who);
  const auto offsets = integers(offsets_json, "data_offsets", who);
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    throw Error(fmt::format("{}: expected \"data_offsets\" [begin, end] with begin ≤ end, got [{}]", who,
                            fmt::join(offsets, ", ")));
  }
  entry.begin = static_cast<size_t>(offsets[0]);
  entry.end = static_cast<size_t>(offsets[1]);
  entry.view.bytes = tensor_bytes(entry.view.dtype, entry.view.shape, who);
  if (entry.end - entry.begin != entry.view.bytes) {
    throw Error(fmt::format("{}: expected {} bytes for {} of shape {}, got data_offsets [{}, {}] of {} bytes", who,
                            entry.view.bytes, entry.view.dtype, shape_text(entry.view.shape), entry.begin, entry.end,
                            entry.end - entry.begin));
  }
  return entry;
}

Metadata read_metadata(const json& object, std::string_view where) {
  if (!object.is_object()) {
    throw Error(fmt::format("{}: expected \"__metadata__\" to be an object, got {}", where, object.type_name()));
  }
  Metadata metadata;
  for (const auto& [key, value] : object.items()) {
    if (!value.is_string()) {
      throw Error(fmt::format("{}: expected \"__metadata__\" to hold strings, got {} under {}", where,
                              value.type_name(), quote(key)));
    }
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

// Sorts the tensors and checks that each begins where the one before ended, and that the last ends with the file.
void place(std::vector<Entry>& entries, std::span<const std::byte> data, std::string_view where) {
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.view.name) < std::tie(b.begin, b.end, b.view.name);
  });
  size_t offset = 0;
  for (auto& entry : entries) {
    const auto who = in_tensor(where, entry.view.name);
    if (entry.begin != offset) {
      throw Error(fmt::format("{}: expected data_offsets to begin at {}, where the tensor before ends, got {}", who,
                              offset, entry.begin));
    }
    if (entry.end > data.size()) {
      throw Error(fmt::format("{}: expected data up to offset {}, got {} data bytes; the file is truncated", who,
                              entry.end, data.size()));
    }
    entry.view.data = data.data() + entry.begin;
    offset = entry.end;
  }
  if (offset != data.size()) {
    throw Error(fmt::format("{}: expected {} data bytes as the header says, got {}", where, offset, data.size()));
  }
}

void check_hash(const Metadata& metadata, std::span<const std::byte> data, std::string_view where) {
  const auto expected = metadata.find(kHash);
  if (expected == metadata.end()) return;  // written by another program
  const auto got = hash_bytes(as_text(data.data(), data.size()));
  if (got == expected->second) return;
  throw Error(
      fmt::format("{}: expected data with XXH3 {}, got {}; the file is damaged, or a program that changed the tensors "
                  "copied the old metadata",
                  where, quote(expected->second), got));
}

}  // namespace

int64_t dtype_bits(std::string_view dtype) {
  const auto* found = find_dtype(dtype);
  return found ? found->bits : 0;
}

size_t tensor_bytes(std::string_view dtype, std::span<const int64_t> shape, std::string_view where) {
  int64_t bits = dtype_bits(dtype);
  if (bits == 0) {
    std::vector<std::string_view> known;
    for (const auto& entry : kDtypes) known.push_back(entry.name);
    throw Error(fmt::format("{}: expected a dtype among {}, got {}", where, fmt::join(known, ", "), quote(dtype)));
  }
  const int64_t element_bits = bits;
  for (const int64_t size : shape) {
    if (size < 0) throw Error(fmt::format("{}: expected sizes ≥ 0, got shape {}", where, shape_text(shape)));
    if (__builtin_mul_overflow(bits, size, &bits)) {
      throw Error(fmt::format("{}: shape {} of {} overflows 64 bits", where, shape_text(shape), dtype));
    }
  }
  if (bits % 8 != 0) {
    throw Error(fmt::format("{}: {} elements have {} bits and shape {} does not fill whole bytes", where, dtype,
                            element_bits, shape_text(shape)));
  }
  return static_cast<size_t>(bits / 8);
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                       const Metadata& metadata) {
  const auto where = path.string();
  check_writable(tensors, where);
  const auto order = in_file_order(tensors);
  const std::string header = header_text(order, metadata, where);
  const uint64_t length = header.size();
  AtomicFile file(path);
  file.write(as_text(&length, kLengthBytes));
  file.write(header);
  for (const auto* tensor : order) file.write(as_text(tensor->data, tensor->bytes));
  file.commit();
}

SafetensorsContent parse_safetensors(std::span<const std::byte> bytes, std::string_view where) {
  const auto header = header_of(bytes, where);
  const json root = parse_json(header, fmt::format("{}: header", where));
  SafetensorsContent content;
  std::vector<Entry> entries;
  for (const auto& [name, value] : root.items()) {
    if (name == "__metadata__") {
      content.metadata = read_metadata(value, where);
    } else {
      entries.push_back(read_entry(name, value, where));
    }
  }
  const auto data = bytes.subspan(kLengthBytes + header.size());
  place(entries, data, where);
  check_hash(content.metadata, data, where);
  for (auto& entry : entries) content.tensors.push_back(std::move(entry.view));
  return content;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(path), content_(parse_safetensors(file_.bytes(), path.string())) {
  for (size_t i = 0; i < content_.tensors.size(); ++i) index_.emplace(content_.tensors[i].name, i);
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &content_.tensors[found->second];
}

}  // namespace prism::io
