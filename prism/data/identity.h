#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "prism/data/corpus.h"

namespace prism::data {

// The content of a path given by the user. Hashes are those of prism/io/hash.h. The hash of a file is that of its bytes
// on disk; the hash of a folder covers the relative name, size and hash of each file read, so it stays the same when
// the folder moves.
struct Source {
  std::string path;  // as given
  int64_t files = 0;
  uint64_t bytes = 0;
  std::string hash;
  int64_t tokens = 0;  // in the split, once it is built; the tokens of a split are in the order of its sources

  bool operator==(const Source&) const = default;
};

// Reads every file of the corpus once. Calls `advance` with the number of bytes done so far.
std::vector<Source> hash_sources(const Corpus& corpus, const std::function<void(uint64_t)>& advance = {});

struct ShardEntry {
  std::string file;  // name within the folder
  int64_t tokens = 0;
  std::string hash;  // of the tokens' bytes, the header not included

  bool operator==(const ShardEntry&) const = default;
};

// The content of `<split>.json` beside the shards of a split. It is written last: shards without it are incomplete.
struct Identity {
  std::string split;  // "train" or "val"
  std::string tokenizer_hash;
  int64_t vocab_size = 0;
  uint32_t end_of_text = 0;  // ends every document
  int64_t documents = 0;
  int64_t tokens = 0;
  uint64_t text_bytes = 0;
  std::string recipe;  // hash of sources, tokenizer and options: equal recipes give equal shards
  std::vector<Source> sources;
  std::vector<ShardEntry> shards;

  bool operator==(const Identity&) const = default;
};

std::filesystem::path identity_path(const std::filesystem::path& folder, std::string_view split);
std::string to_json(const Identity& identity);
Identity identity_from_json(std::string_view text, std::string_view where);
Identity read_identity(const std::filesystem::path& folder, std::string_view split);
bool has_shards(const std::filesystem::path& folder, std::string_view split = "train");

}  // namespace prism::data
