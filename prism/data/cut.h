#pragma once

#include <cstddef>
#include <string_view>

namespace prism::data {

// Where to cut `text` (longer than `limit`) so that the first part has limit/2 < size ≤ limit. In order of preference,
// the last place that is
//   after a line feed and before a visible ASCII character,
//   after a visible ASCII character and before a space that another one follows,
//   not inside a UTF-8 character.
// At the first two, Qwen2's pre-split pattern has a boundary whatever surrounds them and NFC composes nothing across,
// so the parts encode to the same tokens as the whole. The third is for text without blanks; there a word may be cut.
size_t cut_position(std::string_view text, size_t limit);

}  // namespace prism::data
