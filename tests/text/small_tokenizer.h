#pragma once

#include <gtest/gtest.h>

#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prism/io/error.h"
#include "prism/text/byte_level.h"
#include "prism/text/tokenizer.h"
#include "tests/io/temporary_folder.h"

namespace prism::text {

// Returns a tokenizer of the 256 bytes, whose ids are the bytes, a token for each merge, and <|endoftext|>.
inline TokenizerParts small_parts(const std::vector<std::pair<std::string, std::string>>& merges = {}) {
  TokenizerParts parts;
  for (TokenId byte = 0; byte < 256; ++byte) {
    parts.vocabulary.emplace_back(bytes_to_characters(std::string(1, static_cast<char>(byte))), byte);
  }
  for (const auto& [left, right] : merges) {
    parts.merges.emplace_back(bytes_to_characters(left), bytes_to_characters(right));
    parts.vocabulary.emplace_back(bytes_to_characters(left + right), parts.vocabulary.size());
  }
  parts.added_tokens.push_back(
      {.content = std::string(kEndOfText), .id = static_cast<TokenId>(parts.vocabulary.size())});
  return parts;
}

using io::contains;

// Returns the message of the prism::Error that the action throws.
template <typename Action>
std::string refusal(Action&& action) {
  return io::message_of<Error>(action);
}

inline std::string repeat(std::string_view text, size_t times) {
  std::string result;
  for (size_t i = 0; i < times; ++i) result += text;
  return result;
}

// Far more than linear work on a megabyte takes, even with sanitizers, and far less than quadratic work takes.
inline constexpr double kSecondsForAMegabyte = 30;

template <typename Action>
double processor_seconds(Action&& action) {
  const std::clock_t begin = std::clock();
  action();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

}  // namespace prism::text
