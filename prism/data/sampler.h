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

  // Consecutive stretches of the split and how often each is drawn from; fewer than two: the split is one stretch.
  struct Stretch {
    int64_t tokens = 0;
    double weight = 1;
  };
  std::vector<Stretch> stretches = {};
};

// Which tokens step s trains on, as a pure function of (seed, s): nothing to save, nothing to replay on resuming.
//
// The N tokens of the split form a ring (documents end with end-of-text, so the seam is one more document boundary).
// Epoch e lays W = ⌊N/T⌋ windows of T + 1 tokens side by side on it, window w beginning at token (o_e + w·T) mod N; the
// offset o_e = mix(seed, e) mod N changes the cuts from epoch to epoch. Neighbours share one token, a target of the one
// and an input of the other, so an epoch trains on W·T targets, each once. Sequence k of step s has the global index
//   g = s·batch + k,   epoch e = ⌊g/W⌋,   window w = π_e(g mod W),
// with π_e a keyed permutation of the windows (permutation.h). A batch may span two epochs.
//
// Several weighted stretches are as many rings, ring i with W_i windows. An epoch then has K = ΣK_i sequences, of which
// K_i = round(weight_i · W_i), at least 1, are ring i's, shuffled over all by a permutation of the K. Ring i goes
// through its windows in epochs of its own, so weight 2 trains on each token twice in an epoch, weight 1/2 on every
// other window, and on the rest in the next epoch.
class Sampler {
 public:
  Sampler(const Shards& shards, SamplerOptions options);  // `shards` must outlive it

  // Sequences first … first + n − 1 of the step, row after row of context + 1 tokens, where n is out.size() divided by
  // that. The split of a step into smaller batches changes nothing in what it trains on.
  void read(int64_t step, std::span<int64_t> out, int64_t first = 0) const;

  // Has the system load the step's tokens from disk while something else is computed, for shards larger than memory.
  void prefetch(int64_t step) const;

  int64_t sequence_tokens() const { return options_.context + 1; }
  int64_t batch_tokens() const { return options_.batch * sequence_tokens(); }
  int64_t windows() const { return windows_; }                                    // sequences of an epoch
  int64_t epoch(int64_t step) const { return step * options_.batch / windows_; }  // of the step's first sequence
  int64_t start(int64_t sequence) const;  // where in the split the sequence of that global index begins
  const SamplerOptions& options() const { return options_; }

 private:
  struct Ring {
    int64_t first, tokens, windows;
    int64_t count;  // K_i, its sequences in an epoch
    int64_t slot;   // where those begin before they are shuffled
    uint64_t seed;
  };
  struct Window {
    const Ring& ring;
    int64_t begin;  // within the ring
  };

  void add_ring(int64_t first, int64_t tokens, double weight, uint64_t seed);
  Window window(int64_t sequence) const;

  // Calls body(first, count) for the stretch of tokens of a sequence before its ring's seam and for that behind it.
  template <typename Body>
  void for_each_stretch(int64_t sequence, Body body) const;

  const Shards& shards_;
  SamplerOptions options_;
  std::vector<Ring> rings_;
  int64_t windows_ = 0;
};

// Held-out windows: window i is tokens i·T … (i + 1)·T of the split, so each target counts once. At most `limit` of
// them (0: all), spread evenly over the split; always the same.
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

// Hash (prism/io/hash.h) of the tokens as little-endian int64, for telling whether two runs saw the same batch.
std::string batch_hash(std::span<const int64_t> tokens);

}  // namespace prism::data
