#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace prism::io {

// One line of the table: a key, its allowed values, its default and one sentence of help.
//
//   ConfigKey::integer("train.steps", 1000, "Optimizer steps.").at_least(1)
//   ConfigKey::real("optimizer.lr", 0.02, "Peak learning rate of the matrices.").above(0)
//   ConfigKey::string("optimizer.side", "auto", "Side of the Gram matrix.").one_of({"auto", "left", "right", "both"})
//   ConfigKey::integer("model.kv_heads", "auto", "Key-value heads; auto: heads.").at_least(1).or_word("auto")
//   ConfigKey::reals("optimizer.aux_betas", {0.9, 0.95}, "AdamW's averages.").length(2).at_least(0).below(1)
//   ConfigKey::string("data.path", nullptr, "File or folder to train on.")    no default: the user must give it
//
// Values are stored as JSON: integers as int64_t, reals as double, never inf or nan. An integer is accepted for a real,
// and a real without fraction for an integer (8.0, 1e3). A path with a weight is {"path": …, "weight": …}, or just the
// path if the weight is 1.
class ConfigKey {
 public:
  using Json = nlohmann::json;
  using Text = const std::string&;

  // A key of each type, with its default. A weighted path is "a" or {path, weight}.
  static ConfigKey integer(Text name, const Json& value, Text doc) { return {Kind::Integer, 0, name, value, doc}; }
  static ConfigKey real(Text name, const Json& value, Text doc) { return {Kind::Real, 0, name, value, doc}; }
  static ConfigKey boolean(Text name, const Json& value, Text doc) { return {Kind::Boolean, 0, name, value, doc}; }
  static ConfigKey string(Text name, const Json& value, Text doc) { return {Kind::String, 0, name, value, doc}; }
  static ConfigKey integers(Text name, const Json& value, Text doc) { return {Kind::Integer, 1, name, value, doc}; }
  static ConfigKey reals(Text name, const Json& value, Text doc) { return {Kind::Real, 1, name, value, doc}; }
  static ConfigKey strings(Text name, const Json& value, Text doc) { return {Kind::String, 1, name, value, doc}; }
  static ConfigKey weighted_paths(Text name, const Json& value, Text doc) {
    return {Kind::WeightedPath, 1, name, value, doc};
  }
  static ConfigKey real_lists(Text name, const Json& value, Text doc) { return {Kind::Real, 2, name, value, doc}; }

  // Bounds and choices apply to every element of a list.
  ConfigKey at_least(double bound) &&;
  ConfigKey above(double bound) &&;
  ConfigKey at_most(double bound) &&;
  ConfigKey below(double bound) &&;
  ConfigKey one_of(std::vector<std::string> choices) &&;

  // These apply to the value as a whole.
  ConfigKey length(size_t least, size_t most) &&;
  ConfigKey length(size_t exactly) &&;
  ConfigKey must(std::string be, std::function<bool(const Json&)> check) &&;  // expected: "an integer, a multiple of 8"
  ConfigKey or_word(std::string word) &&;                                     // this word is allowed instead

  const std::string& name() const { return name_; }
  const std::string& doc() const { return doc_; }
  const Json& fallback() const { return fallback_; }    // the default; null if there is none
  std::string expected() const;                         // "an integer ≥ 1, or \"auto\""
  std::vector<std::string> words() const;               // allowed words: choices, truth values, "auto"
  std::optional<Json> accept(const Json& value) const;  // the value as stored; none if it is not allowed

  // Parses the value in `--set key=text`: TOML; words need no quotes, lists no brackets. It may still be refused.
  Json from_text(std::string_view text) const;

 private:
  friend class ConfigTable;  // settles the default once all checks are known

  enum class Kind { Integer, Real, Boolean, String, WeightedPath };
  struct Check {
    std::string expected;
    std::function<bool(const Json&)> holds;
  };

  ConfigKey(Kind kind, int depth, Text name, const Json& fallback, Text doc)
      : kind_(kind), depth_(depth), name_(name), fallback_(fallback), doc_(doc) {}
  ConfigKey bounded(const char* relation, double bound, std::function<bool(double, double)> holds);
  std::optional<Json> accept(const Json& value, int depth) const;

  Kind kind_;
  int depth_;  // 0 one value, 1 a list, 2 a list of lists
  std::string name_;
  Json fallback_;
  std::string doc_;
  std::vector<Check> element_checks_, checks_;
  std::vector<std::string> choices_, words_;
  std::string length_;
};

// All keys of a program, in the order in which they are printed and documented. Throws std::logic_error if the table
// itself is wrong: a key twice, or a default that its own checks refuse.
class ConfigTable {
 public:
  // `override_section`, such as "compare.override", holds one section per name that may give any key again.
  ConfigTable(std::vector<ConfigKey> keys, std::string override_section = "");

  const std::vector<ConfigKey>& keys() const { return keys_; }
  const std::string& override_section() const { return override_section_; }
  const ConfigKey* find(std::string_view name) const;
  bool is_section(std::string_view name) const;  // true if a key or the override section begins with it
  std::vector<std::string> sections() const;     // the sections of the keys, in order

  // The known key with the most similar spelling; one with the same last part counts as one letter away.
  std::string nearest(std::string_view name) const;

  std::string markdown() const;  // one heading and one table for each section

 private:
  std::vector<ConfigKey> keys_;
  std::string override_section_;
};

std::string section_of(std::string_view key);  // "train.steps" → "train"

}  // namespace prism::io
