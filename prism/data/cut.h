#pragma once

#include <cstddef>
#include <string_view>

namespace prism::data {

// Where to cut `text` (longer than `limit`) so that the first part has limit/2 < size ≤ limit. In order of preference,
// the last place that is
//   after a visible ASCII character and a line feed, and before a visible ASCII character,
//   after a visible ASCII character and before a space that another one follows,
//   after any line feed and before a visible ASCII character,
//   not inside a UTF-8 character.
// At the first two, the pre-split patterns of Qwen2 and GPT-2 have a boundary whatever surrounds them and NFC composes
// nothing across, so the parts encode to the same tokens as the whole. At the third that holds for Qwen2 only: GPT-2
// takes the last of several blanks to what follows. The fourth is for text without blanks; there a word may be cut.
size_t cut_position(std::string_view text, size_t limit);

}  // namespace prism::data
