#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "prism/text/tokenizer.h"
#include "tests/text/small_tokenizer.h"

namespace prism::text {
namespace {

using nlohmann::json;
using Ids = std::vector<TokenId>;

json small_json() { return json::parse(Tokenizer(small_parts({{"a", "b"}})).to_json()); }

std::string refused(const json& document) {
  return refusal([&] { Tokenizer::from_json(document.dump(), "file"); });
}

std::filesystem::path write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
  return path;
}

TEST(TokenizerJson, WritingAndReadingKeepsEverything) {
  TokenizerParts parts = small_parts({{"a", "b"}, {"\"", "\\"}, {"\n", "\x01"}});
  parts.added_tokens.push_back({.content = "\"quoted\" é",
                                .id = 260,
                                .single_word = true,
                                .lstrip = true,
                                .rstrip = true,
                                .normalized = true,
                                .special = false});
  for (const PreSplit rule : {PreSplit::Qwen2, PreSplit::Gpt2}) {
    for (const Normalizer normalizer : {Normalizer::Nfc, Normalizer::None}) {
      for (const bool ignore_merges : {false, true}) {
        parts.pre_split = rule;
        parts.normalizer = normalizer;
        parts.ignore_merges = ignore_merges;
        const Tokenizer tokenizer(parts);
        const Tokenizer again = Tokenizer::from_json(tokenizer.to_json());
        EXPECT_EQ(again.hash(), tokenizer.hash());
        EXPECT_EQ(again.to_json(), tokenizer.to_json());
        EXPECT_EQ(again.added_tokens(), tokenizer.added_tokens());
      }
    }
  }
}

TEST(TokenizerJson, LongTokensAreWrittenInFull) {
  std::vector<std::pair<std::string, std::string>> merges = {{" ", " "}};
  while (merges.back().first.size() < 256)
    merges.emplace_back(merges.back().first + merges.back().second, merges.back().first + merges.back().second);
  const Tokenizer tokenizer(small_parts(merges));
  EXPECT_EQ(Tokenizer::from_json(tokenizer.to_json()).hash(), tokenizer.hash());
}

TEST(TokenizerJson, MergesAreLinesOrPairs) {
  json document = small_json();
  const std::string hash = Tokenizer::from_json(document.dump()).hash();
  document["model"]["merges"] = {"#version: 0.2", "a b"};
  EXPECT_EQ(Tokenizer::from_json(document.dump()).hash(), hash);
}

TEST(TokenizerJson, GptTwosSplitMayBeWrittenAsAStepOfItsOwn) {
  TokenizerParts parts = small_parts();
  parts.pre_split = PreSplit::Gpt2;
  const Tokenizer tokenizer(parts);
  json document = json::parse(tokenizer.to_json());
  const json split = {{"type", "Split"},
                      {"pattern", {{"Regex", pattern(PreSplit::Gpt2)}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  document["pre_tokenizer"]["use_regex"] = false;
  document["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, document["pre_tokenizer"]}}};
  EXPECT_EQ(Tokenizer::from_json(document.dump()).hash(), tokenizer.hash());
}

TEST(TokenizerJson, WordsThatAreTokensNeedNoMergesWithIgnoreMerges) {
  json document = small_json();
  document["model"]["merges"] = json::array();
  EXPECT_EQ(Tokenizer::from_json(document.dump()).encode("ab"), (Ids{'a', 'b'}));
  document["model"]["ignore_merges"] = true;
  EXPECT_EQ(Tokenizer::from_json(document.dump()).encode("ab abab"), (Ids{256, ' ', 'a', 'b', 'a', 'b'}));
}

struct Change {
  const char* pointer;
  json value;
  const char* message;
};

TEST(TokenizerJson, RefusesByNameWhatItCannotDo) {
  const std::vector<Change> changes = {
      {"/model/type", "Unigram", "file: model.type: expected \"BPE\"; Prism has no other, got \"Unigram\""},
      {"/model/dropout", 0.1, "file: model.dropout: expected null; Prism has no other, got 0.1"},
      {"/model/continuing_subword_prefix", "##", "file: model.continuing_subword_prefix: expected \"\""},
      {"/model/end_of_word_suffix", "</w>", "file: model.end_of_word_suffix"},
      {"/model/byte_fallback", true, "file: model.byte_fallback: expected false"},
      {"/model/ignore_merges", 1, "file: model.ignore_merges: expected true or false, got 1"},
      {"/normalizer", {{"type", "NFKC"}}, "file: normalizer.type: expected \"NFC\"; Prism has no other, got \"NFKC\""},
      {"/pre_tokenizer", nullptr, "file: pre_tokenizer: expected an object, got null"},
      {"/pre_tokenizer/type", "Whitespace", "file: pre_tokenizer.type: expected \"Sequence\""},
      {"/pre_tokenizer/pretokenizers", json::array(), "file: pre_tokenizer.pretokenizers: expected two steps"},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\w+",
       "pretokenizers[0].pattern.Regex: expected the pattern of Qwen2 or of GPT-2, got \"\\\\w+\""},
      {"/pre_tokenizer/pretokenizers/0/pattern", {{"String", " "}}, "pretokenizers[0].pattern: \"Regex\" is missing"},
      {"/pre_tokenizer/pretokenizers/0/behavior", "Removed", "pretokenizers[0].behavior: expected \"Isolated\""},
      {"/pre_tokenizer/pretokenizers/0/invert", true, "pretokenizers[0].invert: expected false"},
      {"/pre_tokenizer/pretokenizers/1/add_prefix_space", true, "pretokenizers[1]: \"add_prefix_space\" must be false"},
      {"/pre_tokenizer/pretokenizers/1/use_regex", true, "pretokenizers[1]: \"use_regex\" must be false after a Split"},
      {"/post_processor", {{"type", "TemplateProcessing"}}, "file: post_processor.type: expected \"ByteLevel\""},
      {"/decoder", {{"type", "WordPiece"}}, "file: decoder.type: expected \"ByteLevel\""},
      {"/truncation", {{"max_length", 5}}, "file: truncation: expected null"},
      {"/padding", {{"pad_id", 0}}, "file: padding: expected null"},
      {"/added_tokens", "none", "file: added_tokens: expected an array, got \"none\""},
      {"/added_tokens/0/lstrip", "yes", "file: added_tokens[0].lstrip: expected true or false, got \"yes\""},
      {"/added_tokens/0/id", -1, "file: added_tokens[0].id: expected a token id, got -1"},
      {"/added_tokens/0/id", 1e30, "file: added_tokens[0].id: expected a token id"},
      {"/model/vocab", json::array(), "file: model.vocab: expected an object, got []"},
      {"/model/vocab/a", "x", "file: model.vocab: expected a token id for \"a\", got \"x\""},
      {"/model/vocab/a", 4294967296, "file: model.vocab: expected a token id for \"a\", got 4294967296"},
      {"/model/merges", 3, "file: model.merges: expected an array, got 3"},
      {"/model/merges/0", "abc", "file: model.merges[0]: expected two tokens with a space between them, got \"abc\""},
      {"/model/merges/0", {"a", "b", "c"}, "file: model.merges[0]: expected \"left right\" or [\"left\", \"right\"]"},
      {"/model/merges/0", {"b", "a"}, "file: merge 1 (\"b\" \"a\"): \"ba\" is not in the vocabulary"},
  };
  for (const Change& change : changes) {
    json document = small_json();
    document[json::json_pointer(change.pointer)] = change.value;
    EXPECT_TRUE(contains(refused(document), change.message)) << change.pointer;
  }
}

TEST(TokenizerJson, NamesWhatIsMissing) {
  for (const char* key : {"model", "pre_tokenizer", "decoder"}) {
    json document = small_json();
    document.erase(key);
    EXPECT_EQ(refused(document), "file: \"" + std::string(key) + "\" is missing");
  }
  for (const char* key : {"vocab", "merges"}) {
    json document = small_json();
    document["model"].erase(key);
    EXPECT_EQ(refused(document), "file: model: \"" + std::string(key) + "\" is missing");
  }
  for (const char* key : {"content", "id", "single_word", "lstrip", "rstrip", "normalized", "special"}) {
    json document = small_json();
    document["added_tokens"][0].erase(key);
    EXPECT_EQ(refused(document), "file: added_tokens[0]: \"" + std::string(key) + "\" is missing");
  }
}

TEST(TokenizerJson, RefusesEveryTruncationOfAFile) {
  const std::string text = Tokenizer(small_parts({{"a", "b"}})).to_json();
  for (size_t size = 0; size + 2 < text.size(); size += 11) {
    EXPECT_TRUE(
        contains(refusal([&] { Tokenizer::from_json(std::string_view(text).substr(0, size), "file"); }), "file: "));
  }
}

TEST(TokenizerJson, RefusesDeepNestingAndOtherValuesThanAnObject) {
  const std::string deep = repeat("[", 1'000'000) + repeat("]", 1'000'000);
  EXPECT_TRUE(contains(refusal([&] { Tokenizer::from_json(deep, "file"); }), "file: "));
  for (const char* text : {"", "null", "[]", "3", "\"text\"", "{}", "\xFF"}) {
    EXPECT_TRUE(contains(refusal([&] { Tokenizer::from_json(text, "file"); }), "file: ")) << text;
  }
}

TEST(TokenizerFiles, AFileAndAFolderWithItAreTheSame) {
  const io::TemporaryFolder folder;
  const Tokenizer tokenizer(small_parts({{"a", "b"}}));
  tokenizer.save(folder.path() / "tokenizer.json");
  EXPECT_EQ(Tokenizer::load(folder.path()).hash(), tokenizer.hash());
  EXPECT_EQ(Tokenizer::load(folder.path() / "tokenizer.json").hash(), tokenizer.hash());
}

TEST(TokenizerFiles, AVocabularyAndMergesMakeATokenizer) {
  const io::TemporaryFolder folder;
  const auto vocabulary = write(folder / "vocab.json", small_json()["model"]["vocab"].dump());
  const auto merges = write(folder / "merges.txt", "#version: 0.2\r\na b\r\n");
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  EXPECT_EQ(tokenizer.encode("ab<|im_end|>"), (Ids{256, 259}));
  EXPECT_EQ(tokenizer.end_of_text(), 257u);
  const VocabularyOptions plain{.normalizer = Normalizer::None, .pre_split = PreSplit::Gpt2, .special_tokens = {"ab"}};
  EXPECT_EQ(Tokenizer::load_vocabulary(vocabulary, merges, plain).added_tokens().at(0).id, 256u);
}

TEST(TokenizerFiles, MessagesNameTheFileAndTheLine) {
  const io::TemporaryFolder folder;
  EXPECT_TRUE(contains(refusal([&] { Tokenizer::load(folder / "none.json"); }), "none.json: cannot open: No such"));
  EXPECT_TRUE(contains(refusal([&] { Tokenizer::load(folder.path()); }), "expected a tokenizer.json, or vocab.json"));
  write(folder / "vocab.json", small_json()["model"]["vocab"].dump());
  EXPECT_TRUE(contains(refusal([&] { Tokenizer::load(folder.path()); }), "merges.txt"));
  write(folder / "merges.txt", "a b\n\n");
  EXPECT_TRUE(contains(refusal([&] { Tokenizer::load(folder.path()); }), "merges.txt:2: expected two tokens"));
}

}  // namespace
}  // namespace prism::text
