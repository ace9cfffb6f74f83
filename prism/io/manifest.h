#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "prism/io/hash.h"

namespace prism::io {

// The `manifest.json` of a checkpoint folder: {"version": 1, "step": N, "files": {name: {"bytes": n, "xxh3": digits}}}.
// It is written last, so a folder with a manifest that verifies is complete.
struct Manifest {
  int64_t step = 0;
  std::map<std::string, FileHash> files;  // plain names, without folders
};

inline constexpr const char* kManifestName = "manifest.json";

// Flushes and hashes every file in the folder, then writes the manifest. Throws if there are folders or links inside.
Manifest write_manifest(const std::filesystem::path& folder, int64_t step);

// Throws prism::Error that names the file if it is missing or has another size or hash, or if the manifest cannot be
// read or has another version. Ignores files that the manifest does not list.
Manifest verify_manifest(const std::filesystem::path& folder);

}  // namespace prism::io
