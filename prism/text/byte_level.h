#pragma once

#include <string>
#include <string_view>

namespace prism::text {

// Vocabulary files write a byte as a printable character: visible Latin-1 as itself, the other 68 bytes, in order, as
// U+0100 on. A space is Ġ, a line feed Ċ.
char32_t byte_to_character(unsigned char byte);

std::string bytes_to_characters(std::string_view bytes);

// The bytes behind a token of a vocabulary, or the token's own bytes where a character of it stands for no byte.
std::string characters_to_bytes(std::string_view token);

}  // namespace prism::text
