#include "prism/data/split.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "prism/io/error.h"

namespace prism::data {

namespace {

constexpr size_t kHashedBytes = size_t{64} << 10;

}  // namespace

uint64_t document_hash(std::string_view first_piece) {
  return XXH3_64bits(first_piece.data(), std::min(first_piece.size(), kHashedBytes));
}

HeldOutChooser::HeldOutChooser(HeldOut held_out) : held_out_(held_out) {
  if (!(held_out.fraction >= 0 && held_out.fraction < 1)) {
    throw Error(fmt::format("data: expected a held-out fraction of at least 0 and below 1, got {}", held_out.fraction));
  }
  if (held_out.documents < 0) {
    throw Error(fmt::format("data: expected a number of held-out documents of at least 0, got {}", held_out.documents));
  }
  if (held_out.fraction > 0 && held_out.documents > 0) {
    throw Error("data: expected a held-out fraction or a number of held-out documents, got both");
  }
}

void HeldOutChooser::add(uint64_t hash) {
  ++documents_;
  smallest_ = std::min(smallest_, hash);
  if (hash > largest_) next_largest_ = std::exchange(largest_, hash);
  if (hash < largest_) next_largest_ = std::max(next_largest_, hash);
  if (held_out_.documents == 0) return;
  if (std::ssize(n_smallest_) < held_out_.documents) {
    n_smallest_.push(hash);
  } else if (hash < n_smallest_.top()) {
    n_smallest_.pop();
    n_smallest_.push(hash);
  }
}

std::optional<uint64_t> HeldOutChooser::bound() const {
  if (held_out_.fraction == 0 && held_out_.documents == 0) return std::nullopt;
  const auto by_fraction = static_cast<uint64_t>(std::ldexp(held_out_.fraction, 64));
  const uint64_t bound =
      held_out_.documents > 0 ? n_smallest_.top() : std::max(std::min(by_fraction, next_largest_), smallest_);
  if (bound < largest_) return bound;
  if (documents_ > 1 && smallest_ == largest_) {
    throw Error(
        fmt::format("data: expected documents that differ in their first 64 KiB, got {} copies of one, and copies stay "
                    "together; remove the copies, or hold out none and name a separate held-out text",
                    documents_));
  }
  throw Error(
      fmt::format("data: expected documents left to train on after the held-out ones, got none of {}; separate the "
                  "documents, hold out fewer, or hold out none and name a separate held-out text",
                  documents_));
}

}  // namespace prism::data
