#include "prism/data/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "prism/data/permutation.h"
#include "prism/io/error.h"
#include "prism/io/hash.h"

namespace prism::data {

namespace {

void check_length(int64_t tokens, int64_t context, const std::string& what) {
  if (context < 1) throw Error(fmt::format("data: expected a context of at least 1 token, got {}", context));
  if (tokens > context) return;
  throw Error(
      fmt::format("data: expected at least {} tokens in {} for a context of {}, got {}; give more text or a "
                  "shorter context",
                  context + 1, what, context, tokens));
}

std::string name_of(const Shards& shards) { return fmt::format("the split \"{}\"", shards.identity().split); }

}  // namespace

Sampler::Sampler(const Shards& shards, SamplerOptions options) : shards_(shards), options_(std::move(options)) {
  if (options_.batch < 1)
    throw Error(fmt::format("data: expected a batch of at least 1 sequence, got {}", options_.batch));
  check_length(shards.tokens(), options_.context, name_of(shards));
  const auto& stretches = options_.stretches;
  if (stretches.size() < 2) {
    add_ring(0, shards.tokens(), 1, options_.seed);
    return;
  }
  int64_t first = 0;
  for (size_t i = 0; i < stretches.size(); ++i) {
    check_length(stretches[i].tokens, options_.context, fmt::format("weighted path {}", i + 1));
    add_ring(first, stretches[i].tokens, stretches[i].weight, mix(options_.seed, i));
    first += stretches[i].tokens;
  }
  if (first != shards.tokens())
    throw std::out_of_range(fmt::format("sampler: stretches of {} tokens in a split of {}", first, shards.tokens()));
}

void Sampler::add_ring(int64_t first, int64_t tokens, double weight, uint64_t seed) {
  const int64_t windows = tokens / options_.context;
  const auto count = std::max<int64_t>(1, std::llround(weight * static_cast<double>(windows)));
  rings_.push_back({first, tokens, windows, count, windows_, seed});
  windows_ += count;
}

Sampler::Window Sampler::window(int64_t sequence) const {
  size_t chosen = 0;
  if (rings_.size() > 1) {
    const int64_t epoch = sequence / windows_;
    const int64_t slot = Permutation(windows_, mix(options_.seed, static_cast<uint64_t>(epoch)))(sequence % windows_);
    chosen = static_cast<size_t>(std::ranges::upper_bound(rings_, slot, {}, &Ring::slot) - rings_.begin()) - 1;
    sequence = epoch * rings_[chosen].count + slot - rings_[chosen].slot;
  }
  const Ring& ring = rings_[chosen];
  const uint64_t key = mix(ring.seed, static_cast<uint64_t>(sequence / ring.windows));
  const int64_t window = Permutation(ring.windows, key)(sequence % ring.windows);
  const auto offset = static_cast<int64_t>(key % static_cast<uint64_t>(ring.tokens));
  return {ring, (offset + window * options_.context) % ring.tokens};
}

int64_t Sampler::start(int64_t sequence) const {
  const auto [ring, begin] = window(sequence);
  return ring.first + begin;
}

template <typename Body>
void Sampler::for_each_stretch(int64_t sequence, Body body) const {
  const auto [ring, begin] = window(sequence);
  const int64_t until_seam = std::min(sequence_tokens(), ring.tokens - begin);
  body(ring.first + begin, until_seam);
  body(ring.first, sequence_tokens() - until_seam);
}

void Sampler::read(int64_t step, std::span<int64_t> out, int64_t first) const {
  const int64_t length = sequence_tokens();
  const int64_t count = static_cast<int64_t>(out.size()) / length;
  if (step < 0 || first < 0 || static_cast<int64_t>(out.size()) % length != 0 || first + count > options_.batch) {
    throw std::out_of_range(fmt::format("sampler: step {}, sequences {} … {} of {}, {} tokens for rows of {}", step,
                                        first, first + count, options_.batch, out.size(), length));
  }
  for (int64_t k = 0; k < count; ++k) {
    for_each_stretch(step * options_.batch + first + k, [&](int64_t begin, int64_t tokens) {
      shards_.read(begin, out.first(static_cast<size_t>(tokens)));
      out = out.subspan(static_cast<size_t>(tokens));
    });
  }
}

void Sampler::prefetch(int64_t step) const {
  for (int64_t k = 0; k < options_.batch; ++k) {
    for_each_stretch(step * options_.batch + k,
                     [&](int64_t begin, int64_t tokens) { shards_.prefetch(begin, tokens); });
  }
}

EvalWindows::EvalWindows(const Shards& shards, int64_t context, int64_t limit) : shards_(shards), context_(context) {
  check_length(shards.tokens(), context, name_of(shards));
  if (limit < 0) throw Error(fmt::format("data: expected a number of held-out windows of at least 0, got {}", limit));
  all_ = (shards.tokens() - 1) / context;
  count_ = limit == 0 ? all_ : std::min(limit, all_);
}

void EvalWindows::read(int64_t index, std::span<int64_t> out) const {
  if (index < 0 || index >= count_ || static_cast<int64_t>(out.size()) != context_ + 1) {
    throw std::out_of_range(
        fmt::format("held-out window {} of {}, {} tokens for {}", index, count_, out.size(), context_ + 1));
  }
  shards_.read(index * all_ / count_ * context_, out);
}

std::string batch_hash(std::span<const int64_t> tokens) {
  return io::hash_bytes({reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()});
}

}  // namespace prism::data
