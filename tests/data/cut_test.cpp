#include "prism/data/cut.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "prism/text/pre_split.h"
#include "prism/text/unicode.h"

namespace prism::data {
namespace {

// Characters that the pre-split rules and NFC treat differently. Blanks appear most often.
constexpr std::array kSnippets = {"\n",
                                  "\n",
                                  "\n\n",
                                  "\r\n",
                                  "\r",
                                  " ",
                                  " ",
                                  "  ",
                                  "\t",
                                  "\xC2\xA0",
                                  "a",
                                  "B",
                                  "7",
                                  "12",
                                  "'s",
                                  "'LL",
                                  "'",
                                  "!?",
                                  "_",
                                  "\xC3\xA9",
                                  "\xCC\x81",
                                  "\xE4\xB8\xAD",
                                  ".",
                                  "e",
                                  "\xE2\x80\xA8",
                                  "\xE1\x84\x80",
                                  "\xE1\x85\xA1",
                                  "\xF0\x9F\x98\x80",
                                  "\x0B"};

std::vector<std::string> words_of(text::PreSplit rule, std::string_view text) {
  std::string storage;
  const std::string normal(text::nfc(text, storage));
  text::WordScanner scanner(rule, normal);
  std::vector<std::string> words;
  for (std::string_view word; scanner.next(word);) words.emplace_back(word);
  return words;
}

// Returns random characters with a place to cut about every 16 bytes.
std::string random_text(std::mt19937& random, size_t bytes) {
  std::string text;
  for (size_t anchor = 0; text.size() < bytes;) {
    if (text.size() >= anchor) {
      text += random() % 2 == 0 ? "x y" : "x\ny";
      anchor = text.size() + 16;
    }
    text += kSnippets[random() % kSnippets.size()];
  }
  return text;
}

class CutWords : public testing::TestWithParam<text::PreSplit> {};

TEST_P(CutWords, AreThoseOfTheWholeText) {
  std::mt19937 random(7);
  for (int repeat = 0; repeat < 20000; ++repeat) {
    const std::string text = random_text(random, 150);
    const size_t cut = cut_position(text, 64 + random() % 64);
    auto words = words_of(GetParam(), text.substr(0, cut));
    for (std::string& word : words_of(GetParam(), text.substr(cut))) words.push_back(std::move(word));
    ASSERT_EQ(words, words_of(GetParam(), text)) << "cut at " << cut << " of " << testing::PrintToString(text);
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, CutWords, testing::Values(text::PreSplit::Qwen2, text::PreSplit::Gpt2),
                         [](const auto& rule) { return rule.param == text::PreSplit::Qwen2 ? "Qwen2" : "Gpt2"; });

}  // namespace
}  // namespace prism::data
