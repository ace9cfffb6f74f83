#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace prism::io {

// TOML laid flat: one entry for each value, under its dotted path, and one for each empty section.
struct TomlEntry {
  std::string path;
  std::optional<nlohmann::json> value;  // none for what JSON cannot hold: dates, times, tables inside lists
  bool is_section = false;
  int64_t line = 0;
};

// In the order of the lines. Throws prism::Error "where:line: …" for text that is not TOML; a key given twice is part
// of that, also when it is spelled once in a section and once with dots.
std::vector<TomlEntry> parse_toml(std::string_view text, std::string_view where);

// One TOML value; nothing when the text is not exactly that.
std::optional<nlohmann::json> parse_toml_value(std::string_view text);

// A value as TOML. Null is not allowed.
std::string toml_text(const nlohmann::json& value);

// A key as TOML, quoted where it must be.
std::string toml_key(std::string_view key);

}  // namespace prism::io
