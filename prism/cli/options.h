#pragma once

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "prism/data/corpus.h"
#include "prism/io/config.h"

namespace prism::cli {

// Each of these adds an option whose value is checked during parsing. Errors say what was expected and what was given.
CLI::Option* add_integer(CLI::App& app, const std::string& name, int64_t& value, const std::string& doc, int64_t least,
                         int64_t most = std::numeric_limits<int64_t>::max());
CLI::Option* add_real(CLI::App& app, const std::string& name, double& value, const std::string& doc, double least,
                      double most);
CLI::Option* add_path(CLI::App& app, const std::string& name, std::string& value, const std::string& doc);
CLI::Option* add_device(CLI::App& app, std::string& value);  // --device

// Adds an option that takes one of `words`; `take` receives the index of the one given.
CLI::Option* add_word(CLI::App& app, const std::string& name, const std::vector<std::string>& words,
                      const std::string& fallback, const std::string& doc,
                      const std::function<void(size_t index)>& take);

// Adds an option that takes one of the known names, or several of them (commas allowed). The help does not list them.
CLI::Option* add_name(CLI::App& app, const std::string& name, std::string& value, const std::vector<std::string>& known,
                      const std::string& doc);
CLI::Option* add_names(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                       const std::vector<std::string>& known, const std::string& doc);
CLI::Option* add_names(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                       const CLI::Validator& is_known, const std::string& doc);

// Adds an option that takes one of several words, each of which stands for a value.
template <typename Value>
CLI::Option* add_choice(CLI::App& app, const std::string& name, Value& value,
                        const std::vector<std::pair<std::string, Value>>& choices, const std::string& doc) {
  std::vector<std::string> words;
  std::vector<Value> values;
  std::string fallback;
  for (const auto& [word, meaning] : choices) {
    words.push_back(word);
    values.push_back(meaning);
    if (meaning == value) fallback = word;
  }
  return add_word(app, name, words, fallback, doc, [&value, values](size_t index) { value = values[index]; });
}

// Returns `text` as one word of a POSIX shell: as it is if every character is plain, else in single quotes.
std::string shell_word(const std::string& text);

// Options that `train` and `compare` share: the configuration file, single settings and the folder for the results.
struct ConfigOptions {
  std::optional<std::string> file;
  std::vector<std::string> settings;
  std::optional<std::string> out;

  void attach(CLI::App& app);
  void apply(io::Config& config) const;  // in this order: file, settings, out
};

// Options that name the text a command reads and say how to split it into documents.
struct CorpusOptions {
  std::vector<std::string> paths;
  data::ReaderOptions reader;

  void add_to(CLI::App& app);
  data::Corpus open() const { return data::Corpus(paths, reader); }
};

}  // namespace prism::cli
