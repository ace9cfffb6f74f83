#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace prism::text {

// Properties of code points in the Hugging Face `tokenizers` package (tools/make_unicode_tables.py reads them from it).
enum CodePointProperty : uint8_t {
  kLetter = 1,     // \p{L}
  kNumber = 2,     // \p{N}
  kSpace = 4,      // \s
  kWord = 8,       // a word character: must not be beside an added token with single_word
  kUnstable = 16,  // NFC may change it, move it or combine it with the character before
  kActive = 32,    // takes part in canonical decomposition, composition or ordering
};

// One byte of CodePointProperty bits for each of the 0x110000 code points.
const uint8_t* code_point_properties();

// Canonical composition (NFC) of valid UTF-8 by the rules of Unicode 9, which `tokenizers` uses: later marks and
// compositions stay unchanged. Returns `text` itself if no character of it can change, otherwise a view of `storage`.
// Takes O(n log n) for any input.
std::string_view nfc(std::string_view text, std::string& storage);

}  // namespace prism::text
