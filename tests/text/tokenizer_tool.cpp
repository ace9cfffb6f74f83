// Runs prism/text behind a pipe, for tests against other implementations. Standard input is a sequence of records, each
// a little-endian uint32 length and that many bytes. Each is answered by one record on standard output, unless noted.
//   tokenizer_tool encode FILE            texts → ids, uint32 each
//   tokenizer_tool encode-as-text FILE    the same with special tokens as plain text
//   tokenizer_tool decode FILE            ids → text
//   tokenizer_tool decode-skip FILE       ids → text without special tokens
//   tokenizer_tool repair | nfc           texts → texts
//   tokenizer_tool split qwen2|gpt2       texts → lengths of the words, uint32 each
//   tokenizer_tool properties             no input; 0x110000 bytes of CodePointProperty bits
//   tokenizer_tool convert FILE OUT       no input; reads a tokenizer and writes it again
//   tokenizer_tool train OUT JSON         texts → a tokenizer.json at OUT; prints statistics; options: vocabulary,
//                                         least_count, threads, special_tokens, pre_split, normalizer, word_memory,
//                                         allow_fewer
//   tokenizer_tool time FILE ROUNDS       texts → processor seconds and number of ids for each round of encoding all
// FILE is what Tokenizer::load takes, or VOCAB.json,MERGES.txt. Refused input gives exit status 2 and a message.
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "prism/io/error.h"
#include "prism/text/bpe_trainer.h"
#include "prism/text/tokenizer.h"
#include "prism/text/unicode.h"
#include "prism/text/utf8.h"

namespace {

using namespace prism::text;
using Arguments = std::vector<std::string>;
using Record = std::string;

bool read_record(Record& record) {
  uint32_t size = 0;
  if (std::fread(&size, sizeof size, 1, stdin) != 1) return false;
  record.resize(size);
  if (std::fread(record.data(), 1, size, stdin) != size) throw prism::Error("a record of standard input is cut short");
  return true;
}

void write_record(std::string_view bytes) {
  const auto size = static_cast<uint32_t>(bytes.size());
  std::fwrite(&size, sizeof size, 1, stdout);
  if (size > 0) std::fwrite(bytes.data(), 1, size, stdout);
}

void write_numbers(const std::vector<uint32_t>& numbers) {
  write_record({reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(uint32_t)});
}

template <typename Answer>
void for_each_record(Answer&& answer) {
  for (Record record; read_record(record);) answer(record);
}

Tokenizer open_tokenizer(const std::string& name) {
  const size_t comma = name.find(',');
  if (comma == std::string::npos) return Tokenizer::load(name);
  return Tokenizer::load_vocabulary(name.substr(0, comma), name.substr(comma + 1));
}

void encode(const Arguments& arguments, SpecialTokens specials) {
  const Tokenizer tokenizer = open_tokenizer(arguments.at(0));
  for_each_record([&](const Record& text) { write_numbers(tokenizer.encode(text, specials)); });
}

void decode(const Arguments& arguments, bool skip_special_tokens) {
  const Tokenizer tokenizer = open_tokenizer(arguments.at(0));
  for_each_record([&](const Record& record) {
    std::vector<TokenId> ids(record.size() / sizeof(TokenId));
    if (!ids.empty()) std::memcpy(ids.data(), record.data(), ids.size() * sizeof(TokenId));
    write_record(tokenizer.decode(ids, skip_special_tokens));
  });
}

void split(const Arguments& arguments) {
  const PreSplit rule = arguments.at(0) == "gpt2" ? PreSplit::Gpt2 : PreSplit::Qwen2;
  for_each_record([&](const Record& text) {
    std::vector<uint32_t> lengths;
    WordScanner scanner(rule, text);
    for (std::string_view word; scanner.next(word);) lengths.push_back(static_cast<uint32_t>(word.size()));
    write_numbers(lengths);
  });
}

void repair() {
  std::string storage;
  for_each_record([&](const Record& bytes) { write_record(repair_utf8(bytes, storage)); });
}

void normalize() {
  std::string storage;
  for_each_record([&](const Record& text) { write_record(nfc(text, storage)); });
}

void train(const Arguments& arguments) {
  const auto given = nlohmann::json::parse(arguments.at(1));
  TrainerOptions options;
  options.vocabulary = given.value("vocabulary", options.vocabulary);
  options.least_count = given.value("least_count", options.least_count);
  options.threads = given.value("threads", options.threads);
  options.special_tokens = given.value("special_tokens", options.special_tokens);
  options.word_memory = given.value("word_memory", options.word_memory);
  options.allow_fewer = given.value("allow_fewer", options.allow_fewer);
  if (given.value("pre_split", "qwen2") == "gpt2") options.pre_split = PreSplit::Gpt2;
  if (given.value("normalizer", "nfc") == "none") options.normalizer = Normalizer::None;
  const TrainerResult result = train_bpe(read_record, options);
  result.tokenizer.save(arguments.at(0));
  const nlohmann::json statistics = {{"size", result.tokenizer.size()},
                                     {"hash", result.tokenizer.hash()},
                                     {"bytes", result.bytes},
                                     {"distinct_words", result.distinct_words},
                                     {"dropped_words", result.dropped_words}};
  fmt::print("{}\n", statistics.dump());
}

void measure(const Arguments& arguments) {
  const Tokenizer tokenizer = open_tokenizer(arguments.at(0));
  std::vector<std::string> texts;
  for_each_record([&](const Record& text) { texts.push_back(text); });
  for (int round = 0; round < std::stoi(arguments.at(1)); ++round) {
    std::vector<TokenId> ids;
    size_t count = 0;
    const std::clock_t begin = std::clock();
    for (const std::string& text : texts) {
      ids.clear();
      tokenizer.encode(text, ids);
      count += ids.size();
    }
    fmt::print("{} {}\n", static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, count);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<void(const Arguments&)>> commands = {
      {"encode", [](const auto& a) { encode(a, SpecialTokens::Parse); }},
      {"encode-as-text", [](const auto& a) { encode(a, SpecialTokens::Text); }},
      {"decode", [](const auto& a) { decode(a, false); }},
      {"decode-skip", [](const auto& a) { decode(a, true); }},
      {"repair", [](const auto&) { repair(); }},
      {"nfc", [](const auto&) { normalize(); }},
      {"split", split},
      {"properties", [](const auto&) { std::fwrite(code_point_properties(), 1, 0x110000, stdout); }},
      {"convert", [](const auto& a) { open_tokenizer(a.at(0)).save(a.at(1)); }},
      {"train", train},
      {"time", measure},
  };
  const Arguments arguments(argv + 1, argv + argc);
  try {
    const auto command = arguments.empty() ? commands.end() : commands.find(arguments[0]);
    if (command == commands.end()) throw prism::Error("the first lines of tokenizer_tool.cpp list the commands");
    command->second(Arguments(arguments.begin() + 1, arguments.end()));
  } catch (const prism::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
