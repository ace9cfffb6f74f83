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

// One line of the table: a key, what its value may be, its default and one sentence about it.
//
//   ConfigKey::integer("train.steps", 1000, "Optimizer steps.").at_least(1)
//   ConfigKey::real("optimizer.lr", 0.02, "Peak learning rate of the matrices.").above(0)
//   ConfigKey::string("optimizer.side", "auto", "Side of the Gram matrix.").one_of({"auto", "left", "right", "both"})
//   ConfigKey::integer("model.kv_heads", "auto", "Key-value heads; auto: as many as
//   heads.").at_least(1).or_word("auto") ConfigKey::reals("optimizer.aux_betas", {0.9, 0.95}, "AdamW's
//   averages.").length(2).at_least(0).below(1) ConfigKey::string("data.path", nullptr, "File or folder to train on.")
//   no default: the user must give it
//
// Values are JSON: integers int64_t, reals double, never inf or nan (an integer where a real is meant becomes one, and
// so the other way round where nothing is lost: 8.0, 1e3), a path with a weight {"path": …, "weight": …}, or the path
// alone where the weight is 1.
class ConfigKey {
 public:
  using Json = nlohmann::json;

  static ConfigKey integer(std::string name, Json fallback, std::string doc);
  static ConfigKey real(std::string name, Json fallback, std::string doc);
  static ConfigKey boolean(std::string name, Json fallback, std::string doc);
  static ConfigKey string(std::string name, Json fallback, std::string doc);
  static ConfigKey integers(std::string name, Json fallback, std::string doc);
  static ConfigKey reals(std::string name, Json fallback, std::string doc);
  static ConfigKey strings(std::string name, Json fallback, std::string doc);
  static ConfigKey weighted_paths(std::string name, Json fallback, std::string doc);  // each "a" or {path, weight}
  static ConfigKey real_lists(std::string name, Json fallback, std::string doc);

  // Bounds and choices hold for every element of a list.
  ConfigKey at_least(double bound) &&;
  ConfigKey above(double bound) &&;
  ConfigKey at_most(double bound) &&;
  ConfigKey below(double bound) &&;
  ConfigKey one_of(std::vector<std::string> choices) &&;

  // For the value as a whole.
  ConfigKey length(size_t least, size_t most) &&;
  ConfigKey length(size_t exactly) &&;
  ConfigKey must(std::string be, std::function<bool(const Json&)> check) &&;  // expected: "an integer, a multiple of 8"
  ConfigKey or_word(std::string word) &&;                                     // this word is allowed instead

  const std::string& name() const { return name_; }
  const std::string& doc() const { return doc_; }
  const Json& fallback() const { return fallback_; }    // null where there is none
  std::string expected() const;                         // "an integer ≥ 1, or \"auto\""
  std::vector<std::string> words() const;               // that are allowed: choices, truth values, "auto"
  std::optional<Json> accept(const Json& value) const;  // the value as stored, or nothing when it is not allowed

  // The value in `--set key=text`: TOML; words need no quotes, lists no brackets. The result may still be refused.
  Json from_text(std::string_view text) const;

 private:
  friend class ConfigTable;  // settles the default once all checks are known

  enum class Kind { integer, real, boolean, string, weighted_path };
  struct Check {
    std::string expected;
    std::function<bool(const Json&)> holds;
  };

  ConfigKey(std::string name, Kind kind, int depth, Json fallback, std::string doc);
  ConfigKey bounded(const char* relation, double bound, std::function<bool(double, double)> holds);
  std::optional<Json> accept(const Json& value, int depth) const;

  std::string name_;
  Kind kind_;
  int depth_;  // 0 one value, 1 a list, 2 a list of lists
  Json fallback_;
  std::string doc_;
  std::vector<Check> element_checks_, checks_;
  std::vector<std::string> choices_, words_;
  std::string length_;
};

// All keys of a program, in the order in which they are printed and documented. A mistake in the table itself (a key
// twice, a default that its own checks refuse) is a std::logic_error.
class ConfigTable {
 public:
  // `override_section`, say "compare.override", holds one part per name that may give any key again for that name.
  ConfigTable(std::vector<ConfigKey> keys, std::string override_section = "");

  const std::vector<ConfigKey>& keys() const { return keys_; }
  const std::string& override_section() const { return override_section_; }
  const ConfigKey* find(std::string_view name) const;
  bool is_section(std::string_view name) const;  // some key, or the override section, begins with it
  std::vector<std::string> sections() const;     // those of the keys, in order

  // The known key that is spelled most alike; one with the same last part counts as one letter away.
  std::string nearest(std::string_view name) const;

  std::string markdown() const;  // one heading and one table for each section

 private:
  std::vector<ConfigKey> keys_;
  std::string override_section_;
};

std::string section_of(std::string_view key);  // "train.steps" → "train"

}  // namespace prism::io
