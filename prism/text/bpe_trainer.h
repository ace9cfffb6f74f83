#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "prism/text/tokenizer.h"

namespace prism::text {

struct TrainerProgress {
  enum class Phase { Counting, Merging };
  Phase phase = Phase::Counting;
  uint64_t bytes = 0;          // of text read
  int64_t distinct_words = 0;  // so far
  int64_t tokens = 0;          // of the vocabulary, so far
  int64_t vocabulary = 0;      // tokens of the final vocabulary
};

struct TrainerOptions {
  int64_t vocabulary = 16384;  // tokens in all: 256 bytes, merges, special tokens
  int64_t least_count = 2;     // a pair that occurs less often is not merged
  std::vector<std::string> special_tokens = {std::string(kEndOfText)};
  Normalizer normalizer = Normalizer::Nfc;
  PreSplit pre_split = PreSplit::Qwen2;
  bool allow_fewer = false;              // a text with too few pairs gives fewer tokens instead of an error
  int64_t threads = 0;                   // threads that count words; 0: one per core
  size_t word_memory = size_t{4} << 30;  // bytes for distinct words; beyond it the rarest are dropped
  std::function<void(const TrainerProgress&)> progress;  // called regularly, on the caller's thread
};

struct TrainerResult {
  Tokenizer tokenizer;
  uint64_t bytes = 0;          // of text read
  int64_t distinct_words = 0;  // after the last one was counted
  int64_t dropped_words = 0;   // for lack of `word_memory`; 0 means that the counts are exact
};

// The next piece of text, at most some megabytes; false at the end. No token is learned across pieces.
using TextSource = std::function<bool(std::string& piece)>;

// Learns a byte-level BPE: starting from the 256 bytes, repeatedly makes a token of the most frequent pair of adjacent
// tokens within words. Of equally frequent pairs, the one with the smaller left id comes first, then the one with the
// smaller right id. This is the rule of the `tokenizers` package, and gives the same tokens and merges.
//   ids   0 … 255 the bytes, in order of their characters in byte_level.h; then the merges; the special tokens last, as
//         in Qwen2 (and added to the model's own vocabulary by `tokenizer.json`'s added_tokens).
// The result depends on the text and the options that describe it, never on threads or timing.
TrainerResult train_bpe(const TextSource& source, const TrainerOptions& options = {});

}  // namespace prism::text
