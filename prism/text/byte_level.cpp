#include "prism/text/byte_level.h"

#include <array>

#include "prism/text/utf8.h"

namespace prism::text {

namespace {

constexpr bool is_visible_latin1(unsigned c) {
  return (c >= '!' && c <= '~') || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
}

constexpr auto kCharacters = [] {
  std::array<char32_t, 256> characters{};
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) characters[byte] = is_visible_latin1(byte) ? byte : next++;
  return characters;
}();

constexpr int kNoByte = -1;

constexpr auto kBytes = [] {
  std::array<int, 0x144> bytes{};
  bytes.fill(kNoByte);
  for (int byte = 0; byte < 256; ++byte) bytes[kCharacters[byte]] = byte;
  return bytes;
}();

}  // namespace

char32_t byte_to_character(unsigned char byte) { return kCharacters[byte]; }

std::string bytes_to_characters(std::string_view bytes) {
  std::string characters;
  for (const char byte : bytes) append_utf8(characters, kCharacters[static_cast<unsigned char>(byte)]);
  return characters;
}

std::string characters_to_bytes(std::string_view token) {
  std::string bytes;
  for (const char *p = token.data(), *end = p + token.size(); p < end;) {
    const char32_t c = next_code_point(p);
    if (c >= kBytes.size() || kBytes[c] == kNoByte) return std::string(token);
    bytes += static_cast<char>(kBytes[c]);
  }
  return bytes;
}

}  // namespace prism::text
