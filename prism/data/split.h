#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <string_view>

namespace prism::data {

// The part of a corpus that is held out, in whole documents: a fraction or a number of them; if both are 0, none.
struct HeldOut {
  double fraction = 0;
  int64_t documents = 0;
};

// The XXH3 (64 bits) of the document's first 64 KiB. Its first piece is enough if pieces have 128 KiB or more.
uint64_t document_hash(std::string_view first_piece);

// Holds out the documents whose hash is at most a bound. So the choice does not depend on the order of the corpus, a
// document stays on its side when others are added or removed, and copies of a document are never on both sides.
//   fraction f      bound = f · 2⁶⁴, moved as far as needed for at least one document on either side
//   documents n     bound = the n-th smallest hash (copies count as often as they occur)
class HeldOutChooser {
 public:
  explicit HeldOutChooser(HeldOut held_out);

  void add(uint64_t hash);                // once for every document; memory is that of n hashes
  std::optional<uint64_t> bound() const;  // none: nothing is held out. Throws if nothing would be left to train on

 private:
  HeldOut held_out_;
  int64_t documents_ = 0;
  uint64_t smallest_ = UINT64_MAX;
  uint64_t largest_ = 0;
  uint64_t next_largest_ = 0;  // below the largest
  std::priority_queue<uint64_t> n_smallest_;
};

}  // namespace prism::data
