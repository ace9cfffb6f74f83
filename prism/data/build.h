#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prism/data/identity.h"
#include "prism/data/reader.h"
#include "prism/data/shards.h"
#include "prism/data/split.h"

namespace prism::data {

// The tokenizer, as this folder needs it.
struct Encoder {
  // Appends the tokens of a piece of text. Called from several threads at once.
  std::function<void(std::string_view text, std::vector<uint32_t>& tokens)> encode;
  std::string hash;
  int64_t vocab_size = 0;
  uint32_t end_of_text = 0;  // appended after each document
};

struct BuildOptions {
  // A fraction of a corpus that is a single document is its end, from the beginning of a line on.
  HeldOut held_out;
  std::optional<Corpus> held_out_text;  // held out instead of documents of the corpus
  int64_t shard_tokens = kDefaultShardTokens;
  int workers = 2;
};

// The corpus is read three times: its files are hashed, then scanned (documents counted, malformed input refused before
// anything is written, the held-out documents chosen), then encoded.
enum class Stage { kHash, kScan, kEncode };

struct Progress {
  Stage stage = Stage::kHash;
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
  int64_t broken_characters = 0;  // what is not UTF-8 in the text; a tokenizer reads U+FFFD there
  uint64_t cut_bytes = 0;         // held out at the end of a text that is one document
};

// Corpus → tokens → shards `train_*.bin` and `val_*.bin` with train.json and val.json in `folder`, replacing those that
// are there once the new ones are safely on disk; train.json appears last. The result depends on neither the number of
// workers nor their pace. Memory is bounded whatever the corpus. `progress` is called on this thread about ten times a
// second and at the end of each stage; an exception it throws cancels the build. A build that fails leaves nothing new
// behind and the old shards as they were.
BuildResult build(const Corpus& corpus, const Encoder& encoder, const std::filesystem::path& folder,
                  const BuildOptions& options, const std::function<void(const Progress&)>& progress = {});

// What the corpus and the held-out text stand for.
struct Sources {
  std::vector<Source> train, held_out;
};
Sources hash_sources(const Corpus& corpus, const BuildOptions& options,
                     const std::function<void(uint64_t)>& advance = {});

// Hash of everything that decides the content of the shards. Shards whose Identity::recipe is equal need no new build.
std::string recipe(const Corpus& corpus, const Sources& sources, const Encoder& encoder, const BuildOptions& options);

}  // namespace prism::data
