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

namespace prism::text {

// The 256 bytes, whose id is the byte itself, then one token for each merge, then <|endoftext|>.
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

// The message of the prism::Error that `action` throws, or why there is none.
template <typename Action>
std::string refusal(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("wrong exception type: ") + error.what();
  }
  return "nothing was thrown";
}

inline ::testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "expected \"" << part << "\" in \"" << text << "\"";
}

inline std::string repeat(std::string_view text, size_t times) {
  std::string result;
  for (size_t i = 0; i < times; ++i) result += text;
  return result;
}

// Far above what linear work takes, even with sanitizers, and far below what quadratic work on a megabyte takes.
inline constexpr double kSecondsForAMegabyte = 30;

template <typename Action>
double processor_seconds(Action&& action) {
  const std::clock_t begin = std::clock();
  action();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

}  // namespace prism::text
