#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "prism/data/shards.h"

namespace prism::data {

struct SamplerOptions {
  int64_t batch = 1;    // sequences of an optimizer step, accumulation included
  int64_t context = 1;  // T: inputs are tokens 0 … T − 1 of a sequence, targets 1 … T
  uint64_t seed = 0;

  // Consecutive stretches of the split and their weights; fewer than two: the split is one stretch.
  struct Stretch {
    int64_t tokens = 0;
    double weight = 1;
  };
  std::vector<Stretch> stretches = {};
};

// The tokens that step s trains on, as a pure function of (seed, s): nothing to save, nothing to replay on resuming.
//
// The N tokens of the split form a ring (documents end with end-of-text, so the seam is one more document boundary).
// Epoch e lays W = ⌊N/T⌋ windows of T + 1 tokens side by side on it, window w beginning at token (o_e + w·T) mod N; the
// offset o_e = mix(seed, e) mod N changes the cuts from epoch to epoch. Adjacent windows share one token, a target of
// one and an input of the other, so an epoch trains on W·T targets, each once. Sequence k of step s has the global
// index
//   g = s·batch + k,   epoch e = ⌊g/W⌋,   window w = π_e(g mod W),
// with π_e a keyed permutation of the windows (permutation.h). A batch may span two epochs.
//
// With several weighted stretches, each is a ring; ring i has W_i windows. An epoch then has K = ΣK_i sequences, of
// which K_i = round(weight_i · W_i), at least 1, come from ring i. A permutation of the K shuffles them. Ring i goes
// through its windows in its own epochs, so weight 2 trains on each token twice in an epoch; weight 1/2 trains on every
// other window, and on the rest in the next epoch.
class Sampler {
 public:
  Sampler(const Shards& shards, SamplerOptions options);  // `shards` must outlive it

  // Reads sequences first … first + n − 1 of the step as rows of context + 1 tokens, where n is out.size() divided by
  // context + 1. Dividing a step into smaller batches does not change what it trains on.
  void read(int64_t step, std::span<int64_t> out, int64_t first = 0) const;

  // Asks the system to load the step's tokens from disk in the background, for shards larger than memory.
  void prefetch(int64_t step) const;

  int64_t sequence_tokens() const { return options_.context + 1; }
  int64_t batch_tokens() const { return options_.batch * sequence_tokens(); }
  int64_t windows() const { return windows_; }  // sequences of an epoch
  int64_t start(int64_t sequence) const;        // position in the split of the sequence with that global index

 private:
  struct Ring {
    int64_t first, tokens, windows;
    int64_t count;  // K_i, its sequences in an epoch
    int64_t slot;   // position of the first of those before shuffling
    uint64_t seed;
  };
  struct Window {
    const Ring& ring;
    int64_t begin;  // within the ring
  };

  void add_ring(int64_t first, int64_t tokens, double weight, uint64_t seed);
  Window window(int64_t sequence) const;

  // Calls body(first, count) for the tokens of a sequence before the seam of its ring, and for those after it.
  template <typename Body>
  void for_each_stretch(int64_t sequence, Body body) const;

  const Shards& shards_;
  SamplerOptions options_;
  std::vector<Ring> rings_;
  int64_t windows_ = 0;
};

// Held-out windows: window i is tokens i·T … (i + 1)·T of the split, so each target counts once. There are at most
// `limit` windows (0: all), spread evenly over the split and always the same.
class EvalWindows {
 public:
  EvalWindows(const Shards& shards, int64_t context, int64_t limit = 0);

  int64_t count() const { return count_; }
  void read(int64_t index, std::span<int64_t> out) const;  // out.size() == context + 1

 private:
  const Shards& shards_;
  int64_t context_;
  int64_t all_ = 0;
  int64_t count_ = 0;
};

// The hash (prism/io/hash.h) of the tokens as little-endian int64, to check that two runs saw the same batch.
std::string batch_hash(std::span<const int64_t> tokens);

}  // namespace prism::data
