#pragma once

#include <cstdint>

namespace prism::data {

// A keyed pseudo-random permutation of {0, …, size − 1}. Each value takes O(1) time and memory.
//
// A Feistel network on pairs: x = a·l + r with l, r ∈ Z_a and a = ⌈√size⌉. Its rounds replace (l, r) by (r, l + F_i(r)
// mod a), where F_i is XXH3 of r keyed by (key, i). Each round is invertible, because subtraction recovers l, so the
// network is a bijection of {0, …, a² − 1}. Values outside the range are sent through again (cycle walking), which
// keeps it a bijection of {0, …, size − 1}. This is rare, since a² < size + 2√size + 1.
class Permutation {
 public:
  Permutation(int64_t size, uint64_t key);
  int64_t operator()(int64_t index) const;  // 0 ≤ index < size

 private:
  uint64_t rounds(uint64_t x) const;

  uint64_t size_;
  uint64_t side_;  // a
  uint64_t key_;
};

// A well-mixed function of two numbers.
uint64_t mix(uint64_t key, uint64_t value);

}  // namespace prism::data
