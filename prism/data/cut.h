#pragma once

#include <cstddef>
#include <string_view>

namespace prism::data {

// The position at which to cut `text` (longer than `limit`), so that the first part has limit/2 < size ≤ limit. In
// order of preference, the last position that is
//   after a visible ASCII character and a line feed, and before a visible ASCII character,
//   after a visible ASCII character and before a space that another one follows,
//   after any line feed and before a visible ASCII character,
//   not inside a UTF-8 character.
// At the first two, the pre-split patterns of Qwen2 and GPT-2 have a boundary in any context, and NFC composes nothing
// across it, so the parts encode to the same tokens as the whole. At the third this is true only for Qwen2: GPT-2 joins
// the last of several blanks to the word that follows. The fourth is for text without blanks; it may cut a word.
size_t cut_position(std::string_view text, size_t limit);

}  // namespace prism::data
