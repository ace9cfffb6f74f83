#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prism/data/corpus.h"
#include "prism/data/identity.h"
#include "prism/data/shards.h"
#include "prism/data/split.h"

namespace prism::data {

// The functions of a tokenizer that this folder needs.
struct Encoder {
  // Appends the tokens of a piece of text. Called from several threads at once.
  std::function<void(std::string_view text, std::vector<uint32_t>& tokens)> encode;
  std::string hash;
  int64_t vocab_size = 0;
  uint32_t end_of_text = 0;  // appended after each document
};

struct BuildOptions {
  // If the corpus is a single document, a held-out fraction is its end, from the beginning of a line on.
  HeldOut held_out;
  std::optional<Corpus> held_out_text;  // held out instead of documents of the corpus
  int64_t shard_tokens = kDefaultShardTokens;
  int workers = 2;
};

// The corpus is read three times: its files are hashed, then scanned (documents are counted, malformed input is refused
// before anything is written, held-out documents are chosen), then encoded.
enum class Stage { Hash, Scan, Encode };

struct Progress {
  Stage stage = Stage::Hash;
  uint64_t bytes = 0;  // done in this stage: of files on disk in the first two, of text in the last
  uint64_t total_bytes = 0;
  double mb_per_s = 0;  // 10⁶ bytes, mean over the stage
  double eta_s = 0;     // until the end of the stage
  int64_t documents = 0;
  int64_t tokens = 0;
};

struct BuildResult {
  Identity train;
  std::optional<Identity> val;  // when something is held out
  Skipped skipped;
  int64_t empty_documents = 0;
  int64_t null_rows = 0;
  int64_t broken_characters = 0;  // places in the text that are not UTF-8; the tokenizer reads U+FFFD there
  uint64_t cut_bytes = 0;         // held out at the end of a text that is one document
};

// Encodes the corpus and writes shards `train_*.bin` and `val_*.bin` with train.json and val.json into `folder`. They
// replace existing ones once they are safely on disk; train.json appears last. The result depends neither on the number
// of workers nor on their speed. Memory is bounded for any corpus. `progress` is called on this thread about ten times
// a second and at the end of each stage; an exception that it throws cancels the build. A build that fails leaves no
// new files, and the old shards as they were.
BuildResult build(const Corpus& corpus, const Encoder& encoder, const std::filesystem::path& folder,
                  const BuildOptions& options, const std::function<void(const Progress&)>& progress = {});

// The sources of the corpus and of the held-out text.
struct Sources {
  std::vector<Source> train, held_out;
};
Sources hash_sources(const Corpus& corpus, const BuildOptions& options,
                     const std::function<void(uint64_t)>& advance = {});

// A hash of everything that determines the content of the shards. Shards with an equal Identity::recipe can be reused.
std::string recipe(const Corpus& corpus, const Sources& sources, const Encoder& encoder, const BuildOptions& options);

}  // namespace prism::data
