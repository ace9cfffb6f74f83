#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "prism/io/hash.h"

namespace prism::io {

// `manifest.json` of a checkpoint folder: {"version": 1, "step": N, "files": {name: {"bytes": n, "xxh3": digits}}}.
// It is written last, so a folder with a manifest that verifies is complete.
struct Manifest {
  int64_t step = 0;
  std::map<std::string, FileHash> files;  // plain names, without folders
};

inline constexpr const char* kManifestName = "manifest.json";

// Flushes and hashes every file in the folder, then writes the manifest. Refuses folders and links inside it.
Manifest write_manifest(const std::filesystem::path& folder, int64_t step);

// Throws prism::Error that names the file and what is wrong: missing, another size, another hash, a manifest that
// cannot be read or is of another version. Files the manifest does not name are ignored.
Manifest verify_manifest(const std::filesystem::path& folder);

}  // namespace prism::io
