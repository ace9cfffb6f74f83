#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prism/data/identity.h"
#include "prism/io/file.h"

namespace prism::data {

// A token shard in the format of llm.c: a header of 256 little-endian int32, of which the first three are used, and the
// tokens:
//   20240520, 1, n    then n uint16, for vocabularies of at most 65,536
//   20240801, 7, n    then n uint32
// A split is several shards read as one sequence of tokens; a document may continue in the next shard.
struct ShardKind {
  int32_t magic, version;
  int64_t token_bytes;
};
constexpr ShardKind kShardKinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};
constexpr size_t kShardHeaderBytes = 256 * sizeof(int32_t);
constexpr int64_t kDefaultShardTokens = 100'000'000;

struct ShardHeader {
  int64_t tokens = 0;
  int64_t token_bytes = 0;  // 2 or 4
};

// Throws unless `file` is a whole shard: magic numbers, a positive count, and exactly the size that they imply.
ShardHeader check_shard(std::span<const std::byte> file, std::string_view name);

int64_t token_bytes_for(int64_t vocab_size);

// Writes the shards of one split. All bytes go to temporary files; `commit` renames them, replacing existing shards,
// with the identity last. Destroying the object before that removes the temporary files.
class ShardWriter {
 public:
  ShardWriter(std::filesystem::path folder, std::string split, int64_t vocab_size,
              int64_t shard_tokens = kDefaultShardTokens);
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  void append(std::span<const uint32_t> tokens);  // throws for an id that is not below vocab_size
  int64_t tokens() const { return tokens_; }

  void flush();                        // flushes everything to disk, still under temporary names
  Identity commit(Identity identity);  // fills in split, vocab_size, tokens and shards

 private:
  struct OpenShard;

  void begin_shard();
  void end_shard();
  std::filesystem::path temporary(const std::string& file) const;

  std::filesystem::path folder_;
  std::string split_;
  int64_t vocab_size_;
  int64_t token_bytes_;
  int64_t shard_tokens_;
  int64_t tokens_ = 0;
  std::unique_ptr<OpenShard> open_;
  std::vector<ShardEntry> written_;
  bool replacing_ = false;  // the previous shards have been removed
  bool committed_ = false;
};

// Removes a split's identity, then its shards, finished or temporary.
void remove_shards(const std::filesystem::path& folder, std::string_view split);

// The tokens of one split, memory-mapped. Opening checks the identity, every header and every size; `verify` reads all
// tokens and compares their hashes.
class Shards {
 public:
  // Throws if the shards were made with a tokenizer of another hash; an empty hash accepts any.
  Shards(const std::filesystem::path& folder, std::string_view split, std::string_view tokenizer_hash);

  // Appends the tokens of other shards, which must have the same tokenizer. The recipe becomes that of both.
  void append(Shards other);

  int64_t tokens() const { return identity_.tokens; }
  const Identity& identity() const { return identity_; }

  // Reads tokens [first, first + out.size()). Throws for an id outside the vocabulary.
  void read(int64_t first, std::span<int64_t> out) const;
  void prefetch(int64_t first, int64_t count) const;  // asks the system to load them; does not wait
  void verify() const;

 private:
  struct Part {
    io::MappedFile file;
    std::string name;
    ShardHeader header;
    int64_t first = 0;  // position of its first token in the split
  };

  // Calls body(part, offset, count) for the stretch of each part.
  template <typename Body>
  void for_each_part(int64_t first, int64_t count, Body body) const;
  static size_t byte_offset(const Part& part, int64_t token);  // in its file
  void read_part(const Part& part, int64_t first, std::span<int64_t> out) const;

  Identity identity_;
  std::vector<Part> parts_;
};

}  // namespace prism::data
