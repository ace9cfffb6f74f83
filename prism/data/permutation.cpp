#include "prism/data/permutation.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cmath>

#include "prism/io/error.h"

namespace prism::data {

namespace {

constexpr uint64_t kRounds = 8;

uint64_t ceil_sqrt(uint64_t n) {
  auto root = static_cast<uint64_t>(std::sqrt(static_cast<double>(n)));
  while (root * root < n) ++root;
  while (root > 1 && (root - 1) * (root - 1) >= n) --root;
  return root;
}

}  // namespace

uint64_t mix(uint64_t key, uint64_t value) { return XXH3_64bits_withSeed(&value, sizeof(value), key); }

Permutation::Permutation(int64_t size, uint64_t key) : size_(static_cast<uint64_t>(size)), side_(0), key_(key) {
  // The square of the side must fit into 64 bits.
  if (size < 1 || size > (int64_t{1} << 62)) {
    throw Error(fmt::format("permutation: expected a size between 1 and 2^62, got {}", size));
  }
  side_ = ceil_sqrt(size_);
}

uint64_t Permutation::rounds(uint64_t x) const {
  uint64_t left = x / side_;
  uint64_t right = x % side_;
  for (uint64_t i = 0; i < kRounds; ++i) {
    const uint64_t next = (left + mix(key_ + i, right) % side_) % side_;
    left = right;
    right = next;
  }
  return left * side_ + right;
}

int64_t Permutation::operator()(int64_t index) const {
  auto x = static_cast<uint64_t>(index);
  do {
    x = rounds(x);
  } while (x >= size_);
  return static_cast<int64_t>(x);
}

}  // namespace prism::data
