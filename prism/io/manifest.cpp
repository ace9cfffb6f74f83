#include "prism/io/manifest.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "prism/io/atomic_file.h"
#include "prism/io/error.h"
#include "prism/io/json.h"

namespace prism::io {

namespace {

using nlohmann::json;

constexpr int64_t kVersion = 1;

void expect(bool condition, const std::string& where, std::string_view expected, const json& got) {
  if (!condition) throw Error(fmt::format("{}: expected {}, got {}", where, expected, quote(got.dump())));
}

void expect_keys(const json& object, const std::string& where, const std::map<std::string, json::value_t>& keys) {
  expect(object.is_object(), where, "an object", object);
  for (const auto& item : object.items()) expect(keys.contains(item.key()), where, "no such key", item.key());
  for (const auto& [key, type] : keys) {
    const auto found = object.find(key);
    const json got = found == object.end() ? json() : *found;
    expect(got.type() == type, where, fmt::format("\"{}\" of type {}", key, json(type).type_name()), got);
  }
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name != kManifestName && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

Manifest parse_manifest(const std::string& text, const std::string& where) {
  const json root = parse_json(text, where);
  expect(root.is_object() && root.contains("version"), where, "an object with \"version\"", root);
  expect(root["version"] == kVersion, where, fmt::format("version {}", kVersion), root["version"]);
  using Type = json::value_t;
  expect_keys(root, where,
              {{"version", Type::number_unsigned}, {"step", Type::number_unsigned}, {"files", Type::object}});
  expect(root["step"].get<uint64_t>() <= INT64_MAX, where, "a step within 63 bits", root["step"]);
  Manifest manifest{.step = root["step"].get<int64_t>(), .files = {}};
  for (const auto& [name, entry] : root["files"].items()) {
    expect(is_plain_name(name), where, "a file name without folders", name);
    expect_keys(entry, where, {{"bytes", Type::number_unsigned}, {"xxh3", Type::string}});
    manifest.files[name] = {entry["bytes"].get<uint64_t>(), entry["xxh3"].get<std::string>()};
  }
  expect(!manifest.files.empty(), where, "at least one file", root["files"]);
  return manifest;
}

void verify_file(const std::filesystem::path& path, const FileHash& expected) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(path, error);
  if (!std::filesystem::exists(status)) throw Error(fmt::format("{}: the file is missing", path.string()));
  if (!std::filesystem::is_regular_file(status)) {
    throw Error(fmt::format("{}: expected a regular file", path.string()));
  }
  const auto size = std::filesystem::file_size(path);
  if (size != expected.bytes) {
    throw Error(fmt::format("{}: expected {} bytes, got {}{}", path.string(), expected.bytes, size,
                            size < expected.bytes ? "; the file is truncated" : ""));
  }
  const auto got = hash_file(path);
  if (got != expected) {
    throw Error(
        fmt::format("{}: expected hash {}, got {}; the content changed", path.string(), expected.xxh3, got.xxh3));
  }
}

}  // namespace

Manifest write_manifest(const std::filesystem::path& folder, int64_t step) {
  if (step < 0) throw Error(fmt::format("{}: expected step ≥ 0, got {}", folder.string(), step));
  Manifest manifest{.step = step, .files = {}};
  json files = json::object();
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto name = entry.path().filename().string();
    if (entry.is_symlink() || !entry.is_regular_file() || !is_plain_name(name)) {
      throw Error(fmt::format("{}: expected a plain data file in a checkpoint", entry.path().string()));
    }
    sync_file(entry.path());
    manifest.files[name] = hash_file(entry.path());
    files[name] = {{"bytes", manifest.files[name].bytes}, {"xxh3", manifest.files[name].xxh3}};
  }
  if (files.empty()) throw Error(fmt::format("{}: expected at least one file in a checkpoint", folder.string()));
  const json root = {{"version", kVersion}, {"step", step}, {"files", files}};
  write_file_atomically(folder / kManifestName, root.dump(2) + '\n');
  return manifest;
}

Manifest verify_manifest(const std::filesystem::path& folder) {
  const auto path = folder / kManifestName;
  auto manifest = parse_manifest(read_file(path), path.string());
  for (const auto& [name, expected] : manifest.files) verify_file(folder / name, expected);
  return manifest;
}

}  // namespace prism::io
