#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace prism::io {

// Flattened TOML: one entry for each value, under its dotted path, and one for each empty section.
struct TomlEntry {
  std::string path;
  std::optional<nlohmann::json> value;  // none for what JSON cannot hold: dates, times, tables inside lists
  bool is_section = false;
  int64_t line = 0;
};

// Returns the entries in the order of the lines. Throws prism::Error "where:line: …" if the text is not TOML or gives a
// key twice, even once in a section and once with dots.
std::vector<TomlEntry> parse_toml(std::string_view text, std::string_view where);

// Parses one TOML value; none if the text is anything else.
std::optional<nlohmann::json> parse_toml_value(std::string_view text);

// A value as TOML. Null is not allowed.
std::string toml_text(const nlohmann::json& value);

// A key as TOML, with quotes if needed.
std::string toml_key(std::string_view key);

}  // namespace prism::io
