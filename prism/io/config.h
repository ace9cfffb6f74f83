#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "prism/io/config_table.h"

namespace prism::io {

// The values of a table's keys: its defaults, overridden by what was read, in order. Every value is checked when it is
// read. A mistake throws prism::Error with file and line (or the --set text), the key, what was expected and what was
// given; for an unknown key, the nearest known one.
//
//   Config config(table);
//   config.read_file("configs/demo.toml");
//   config.set("train.steps=40");
//   for (int64_t step = 0; step < config.integer("train.steps"); ++step) …
class Config {
 public:
  explicit Config(ConfigTable table);

  void read_file(const std::filesystem::path& path);
  void read_toml(std::string_view text, std::string_view where);
  // "section.key=value"; the value is TOML, with words without quotes and lists without brackets allowed.
  void set(std::string_view assignment);
  void assign(std::string_view key, const nlohmann::json& value, std::string_view origin);  // origin begins messages

  // Throws std::logic_error if the table does not have the key, or has it with another type. Throws prism::Error if the
  // key has neither a value nor a default.
  const nlohmann::json& value(std::string_view key) const;
  int64_t integer(std::string_view key) const;
  double real(std::string_view key) const;
  bool boolean(std::string_view key) const;
  std::string string(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key) const;
  std::vector<double> reals(std::string_view key) const;
  std::vector<std::string> strings(std::string_view key) const;

  bool has(std::string_view key) const;                         // there is a value or a default
  bool is_given(std::string_view key) const;                    // not the default
  bool is(std::string_view key, std::string_view word) const;   // the value is this string
  std::string where(std::string_view key) const;                // "demo.toml:3: train.steps", for messages
  std::string origin(std::string_view key) const;               // "demo.toml:3", "--set train.steps=40" or "default"
  nlohmann::ordered_json section(std::string_view name) const;  // last parts of its keys → values, in table order

  // Throws prism::Error, "--set train.steps=40: train.steps: WHY", if the key was set alone instead of in a file.
  void refuse_set(std::string_view key, std::string_view why) const;

  // The sections [compare.override.NAME] (override_section of the table), and this configuration overridden by one.
  std::vector<std::string> override_names() const;
  Config overridden(std::string_view name) const;  // a copy if there is no such section

  void reset(std::string_view section);  // sets its keys to their defaults; removes overrides if they are in it

  // Returns all values as TOML that reads back as the same configuration.
  std::string to_toml() const;

  const ConfigTable& table() const { return *table_; }

 private:
  struct Setting {
    nlohmann::json value;
    std::string origin;
  };
  using Settings = std::map<std::string, Setting, std::less<>>;
  struct Place {
    const ConfigKey* key;
    std::string_view override_name;  // empty for a plain key
  };

  Place place_of(std::string_view path, std::string_view origin) const;
  bool split_override(std::string_view path, std::string_view& name, std::string_view& key) const;
  void check_section(std::string_view path, std::string_view origin) const;
  const ConfigKey& key_of(std::string_view name) const;

  std::shared_ptr<const ConfigTable> table_;
  Settings given_;
  std::map<std::string, Settings, std::less<>> overrides_;
};

}  // namespace prism::io
