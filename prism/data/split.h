#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <string_view>

namespace prism::data {

// How much of a corpus is held out, in whole documents: a fraction of them, or a number of them; both zero keep none.
struct HeldOut {
  double fraction = 0;
  int64_t documents = 0;
};

// XXH3 (64 bits) of the document's first 64 KiB. Its first piece is enough, for pieces of 128 KiB or more.
uint64_t document_hash(std::string_view first_piece);

// A document is held out when its hash is at most a bound. So the choice does not depend on the order of the corpus, a
// document keeps its side while others come and go, and copies of a document are never on both sides.
//   fraction f      bound = f · 2⁶⁴, moved as far as needed for at least one document on either side
//   documents n     bound = the n-th smallest hash (copies count as often as they occur)
class HeldOutChooser {
 public:
  explicit HeldOutChooser(HeldOut held_out);

  void add(uint64_t hash);  // once for every document; memory is that of n hashes
  std::optional<uint64_t> bound()
      const;  // no value: nothing is held out. Throws if that would leave nothing to train on

 private:
  HeldOut held_out_;
  int64_t documents_ = 0;
  uint64_t smallest_ = UINT64_MAX;
  uint64_t largest_ = 0;
  uint64_t next_largest_ = 0;  // below the largest
  std::priority_queue<uint64_t> n_smallest_;
};

}  // namespace prism::data
