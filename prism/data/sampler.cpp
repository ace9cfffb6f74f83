#include "prism/data/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "prism/data/permutation.h"
#include "prism/io/error.h"
#include "prism/io/hash.h"

namespace prism::data {

namespace {

void check_length(const Shards& shards, int64_t context) {
  if (context < 1) throw Error(fmt::format("data: expected a context of at least 1 token, got {}", context));
  if (shards.tokens() > context) return;
  throw Error(
      fmt::format("data: expected at least {} tokens in the split \"{}\" for a context of {}, got {}; give more "
                  "text or a shorter context",
                  context + 1, shards.identity().split, context, shards.tokens()));
}

}  // namespace

Sampler::Sampler(const Shards& shards, SamplerOptions options) : shards_(shards), options_(options) {
  if (options.batch < 1)
    throw Error(fmt::format("data: expected a batch of at least 1 sequence, got {}", options.batch));
  check_length(shards, options.context);
  windows_ = shards.tokens() / options.context;
}

int64_t Sampler::start(int64_t sequence) const {
  const auto epoch = static_cast<uint64_t>(sequence / windows_);
  const uint64_t key = mix(options_.seed, epoch);
  const int64_t window = Permutation(windows_, key)(sequence % windows_);
  const auto offset = static_cast<int64_t>(key % static_cast<uint64_t>(shards_.tokens()));
  return (offset + window * options_.context) % shards_.tokens();
}

void Sampler::read(int64_t step, std::span<int64_t> out, int64_t first) const {
  const int64_t length = sequence_tokens();
  const int64_t count = static_cast<int64_t>(out.size()) / length;
  if (step < 0 || first < 0 || static_cast<int64_t>(out.size()) % length != 0 || first + count > options_.batch) {
    throw std::out_of_range(fmt::format("sampler: step {}, sequences {} … {} of {}, {} tokens for rows of {}", step,
                                        first, first + count, options_.batch, out.size(), length));
  }
  for (int64_t k = 0; k < count; ++k) {
    const int64_t begin = start(step * options_.batch + first + k);
    const int64_t until_seam = std::min(length, shards_.tokens() - begin);
    const auto row = out.subspan(static_cast<size_t>(k * length), static_cast<size_t>(length));
    shards_.read(begin, row.first(static_cast<size_t>(until_seam)));
    shards_.read(0, row.subspan(static_cast<size_t>(until_seam)));
  }
}

void Sampler::prefetch(int64_t step) const {
  for (int64_t k = 0; k < options_.batch; ++k) {
    const int64_t begin = start(step * options_.batch + k);
    const int64_t until_seam = std::min(sequence_tokens(), shards_.tokens() - begin);
    shards_.prefetch(begin, until_seam);
    shards_.prefetch(0, sequence_tokens() - until_seam);
  }
}

EvalWindows::EvalWindows(const Shards& shards, int64_t context, int64_t limit) : shards_(shards), context_(context) {
  check_length(shards, context);
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
