#include "prism/io/config_toml.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "prism/io/error.h"
#include "prism/io/json.h"

namespace prism::io {

namespace {

using nlohmann::json;

constexpr size_t kMaxBytes = 1 << 20;
constexpr int64_t kMaxDots = 1000;

std::optional<json> to_json(const toml::node& node) {
  if (const auto* value = node.as_boolean()) return value->get();
  if (const auto* value = node.as_integer()) return value->get();
  if (const auto* value = node.as_floating_point()) return value->get();
  if (const auto* value = node.as_string()) return value->get();
  const auto* array = node.as_array();
  if (!array) return std::nullopt;
  json list = json::array();
  for (const auto& element : *array) {
    auto value = to_json(element);
    if (!value) return std::nullopt;
    list.push_back(std::move(*value));
  }
  return list;
}

void flatten(const toml::table& table, const std::string& prefix, std::vector<TomlEntry>& entries) {
  for (const auto& [key, node] : table) {
    const auto path = prefix + std::string(key.str());
    const int64_t line = key.source().begin.line;
    const auto* section = node.as_table();
    if (section && !section->empty()) {
      flatten(*section, path + '.', entries);
    } else {
      entries.push_back({path, to_json(node), section != nullptr, line});
    }
  }
}

// A path of a hundred thousand parts would overflow the stack inside the parser.
void check_size(std::string_view text, std::string_view where) {
  if (text.size() > kMaxBytes) {
    throw Error(fmt::format("{}: expected at most {} bytes, got {}; is this a configuration file?", where, kMaxBytes,
                            text.size()));
  }
  for (int64_t number = 1; !text.empty(); ++number) {
    const auto line = text.substr(0, text.find('\n'));
    if (std::ranges::count(line, '.') > kMaxDots) {
      throw Error(fmt::format("{}:{}: more than {} dots in one line", where, number, kMaxDots));
    }
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
}

void refuse_twice(const std::vector<TomlEntry>& entries, std::string_view where) {
  std::map<std::string_view, int64_t> lines;
  for (const auto& entry : entries) {
    const auto [first, is_new] = lines.try_emplace(entry.path, entry.line);
    if (!is_new) {
      throw Error(fmt::format("{}:{}: {} was already given in line {}", where, entry.line, entry.path, first->second));
    }
  }
}

}  // namespace

std::vector<TomlEntry> parse_toml(std::string_view text, std::string_view where) {
  check_size(text, where);
  std::vector<TomlEntry> entries;
  try {
    flatten(toml::parse(text), "", entries);
  } catch (const toml::parse_error& error) {
    throw Error(fmt::format("{}:{}: invalid TOML: {}", where, error.source().begin.line, error.description()));
  }
  std::ranges::stable_sort(entries, {}, &TomlEntry::line);
  refuse_twice(entries, where);
  return entries;
}

std::optional<json> parse_toml_value(std::string_view text) {
  try {
    check_size(text, "");
    const auto table = toml::parse(fmt::format("value = {}", text));
    const auto* node = table.get("value");
    return table.size() == 1 ? to_json(*node) : std::nullopt;
  } catch (const toml::parse_error&) {
    return std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string toml_text(const json& value) {
  // JSON is TOML but for DEL, which TOML wants escaped; in JSON text it stands only inside strings.
  std::string text;
  for (const char character : value.dump()) text += character == '\x7f' ? "\\u007f" : std::string(1, character);
  return text;
}

std::string toml_key(std::string_view key) {
  const auto is_bare = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; };
  return !key.empty() && std::ranges::all_of(key, is_bare) ? std::string(key) : toml_text(key);
}

}  // namespace prism::io
