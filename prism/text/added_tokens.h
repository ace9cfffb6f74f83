#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prism/text/bpe.h"

namespace prism::text {

// A token found as it stands in the text, before the text is cut into words.
struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool single_word = false;  // only where no word character is beside it
  bool lstrip = false;       // takes the blanks before it along
  bool rstrip = false;       // takes the blanks after it along
  bool normalized = false;   // looked for in the normalized text instead of the original
  bool special = true;       // control token, left out of decoded text on request

  bool operator==(const AddedToken&) const = default;
};

// Finds added tokens, the leftmost first and of those at one place the longest. Matches do not overlap; one that is
// refused (by single_word, or special while special tokens are to be text) still covers its place.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  // Calls `piece` for the stretches between added tokens and `token` for each of these, in order.
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
