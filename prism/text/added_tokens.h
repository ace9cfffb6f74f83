#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prism/text/bpe.h"

namespace prism::text {

// A token that is searched for literally, before the text is split into words.
struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool single_word = false;  // matches only if no word character is beside it
  bool lstrip = false;       // includes the blanks before it
  bool rstrip = false;       // includes the blanks after it
  bool normalized = false;   // searched for in the normalized text instead of the original
  bool special = true;       // control token, left out of decoded text on request

  bool operator==(const AddedToken&) const = default;
};

// Finds added tokens: the leftmost first, and the longest of those that start at the same position. Matches do not
// overlap. A match that is rejected (by single_word, or because special tokens count as text) still covers its range.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  // Calls `token` for each added token and `piece` for the text between them, in order.
  void split(std::string_view text, bool specials_are_text, const std::function<void(std::string_view)>& piece,
             const std::function<void(const AddedToken&)>& token) const;

 private:
  struct Match {
    const AddedToken* token;
    size_t begin, end;
  };
  bool find(std::string_view text, size_t from, Match& match) const;
  const AddedToken* longest_at(std::string_view rest) const;  // at the front of `rest`, which is not empty

  std::vector<AddedToken> tokens_;                              // by content, in order of bytes
  std::array<std::pair<size_t, size_t>, 256> by_first_byte_{};  // ranges of tokens_
  std::string first_bytes_;
};

}  // namespace prism::text
