// Runs prism/data for the Python tests.
//   data_tool documents PATH [KEY=VALUE…]       prints a line for each document: its pieces in hexadecimal
//   data_tool count PATH [KEY=VALUE…]           prints the number of documents, their bytes and the peak memory in KiB
//   data_tool build PATH FOLDER [KEY=VALUE…]    writes shards; token ids are the bytes, and 256 ends a text
//   data_tool batch FOLDER STEP [KEY=VALUE…]    prints the tokens of a training step, a line for each sequence
// Keys: separator, field, extension, piece, documents, shard_tokens, wide, batch, context, seed.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "prism/data/build.h"
#include "prism/data/sampler.h"
#include "prism/io/error.h"

namespace {

using namespace prism::data;
using Settings = std::map<std::string, std::string>;

std::string get(const Settings& settings, const std::string& key, const std::string& otherwise) {
  const auto found = settings.find(key);
  return found == settings.end() ? otherwise : found->second;
}

int64_t number(const Settings& settings, const std::string& key, int64_t otherwise) {
  return std::stoll(get(settings, key, std::to_string(otherwise)));
}

ReaderOptions reader_options(const Settings& settings) {
  ReaderOptions options;
  options.separator = get(settings, "separator", options.separator);
  options.text_field = get(settings, "field", options.text_field);
  options.piece_bytes = static_cast<size_t>(number(settings, "piece", static_cast<int64_t>(options.piece_bytes)));
  if (settings.contains("extension")) options.extensions = {settings.at("extension")};
  return options;
}

void print_documents(const std::string& path, const Settings& settings) {
  const Corpus corpus({path}, reader_options(settings));
  Documents documents(corpus);
  for (Piece piece; documents.next(piece);) {
    std::string digits;
    for (const unsigned char byte : piece.text) fmt::format_to(std::back_inserter(digits), "{:02x}", byte);
    fmt::print("{}{}", digits, piece.last ? "\n" : " ");
  }
}

// Returns the peak memory in KiB. Unlike getrusage, it does not count the process before exec.
std::string peak_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmHWM:" && status >> word) return word;
  }
  return "unknown";
}

void count(const std::string& path, const Settings& settings) {
  const Corpus corpus({path}, reader_options(settings));
  Documents documents(corpus);
  size_t bytes = 0;
  for (Piece piece; documents.next(piece);) bytes += piece.text.size();
  fmt::print("{} {} {}\n", documents.documents(), bytes, peak_kib());
}

void build_shards(const std::string& path, const std::string& folder, const Settings& settings) {
  const Corpus corpus({path}, reader_options(settings));
  const auto encode = [](std::string_view text, std::vector<uint32_t>& tokens) {
    for (const unsigned char byte : text) tokens.push_back(byte);
  };
  BuildOptions options;
  options.held_out.documents = number(settings, "documents", 0);
  options.shard_tokens = number(settings, "shard_tokens", options.shard_tokens);
  build(corpus, {encode, "bytes", number(settings, "wide", 0) ? 100'000 : 257, 256}, folder, options);
}

void print_batch(const std::string& folder, int64_t step, const Settings& settings) {
  const Shards shards(folder, "train", "bytes");
  const Sampler sampler(shards, {.batch = number(settings, "batch", 1),
                                 .context = number(settings, "context", 8),
                                 .seed = static_cast<uint64_t>(number(settings, "seed", 0))});
  std::vector<int64_t> tokens(static_cast<size_t>(sampler.batch_tokens()));
  sampler.read(step, tokens);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool ends = (i + 1) % static_cast<size_t>(sampler.sequence_tokens()) == 0;
    fmt::print("{}{}", tokens[i], ends ? "\n" : " ");
  }
}

void run(std::vector<std::string> words) {
  Settings settings;
  std::erase_if(words, [&](const std::string& word) {
    const size_t equals = word.find('=');
    if (equals != std::string::npos) settings[word.substr(0, equals)] = word.substr(equals + 1);
    return equals != std::string::npos;
  });
  if (words.size() == 2 && words[0] == "documents") return print_documents(words[1], settings);
  if (words.size() == 2 && words[0] == "count") return count(words[1], settings);
  if (words.size() == 3 && words[0] == "build") return build_shards(words[1], words[2], settings);
  if (words.size() == 3 && words[0] == "batch") return print_batch(words[1], std::stoll(words[2]), settings);
  throw prism::Error(
      "usage: data_tool documents PATH | count PATH | build PATH FOLDER | batch FOLDER STEP, then KEY=VALUE …");
}

}  // namespace

int main(int count, char** arguments) {
  try {
    run({arguments + 1, arguments + count});
    return 0;
  } catch (const prism::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
