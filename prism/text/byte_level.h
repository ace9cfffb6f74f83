#pragma once

#include <string>
#include <string_view>

namespace prism::text {

// Vocabulary files write each byte as a printable character: visible Latin-1 as itself, the other 68 bytes, in order,
// from U+0100 on. A space is Ġ, a line feed Ċ.
char32_t byte_to_character(unsigned char byte);

std::string bytes_to_characters(std::string_view bytes);

// The bytes that a token of a vocabulary stands for, or the token's own bytes if one of its characters stands for none.
std::string characters_to_bytes(std::string_view token);

}  // namespace prism::text
