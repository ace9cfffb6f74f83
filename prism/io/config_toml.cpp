#include "prism/io/config_toml.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <tuple>

#include "prism/io/error.h"
#include "prism/io/json.h"

// Some texts that are not TOML make an assertion of toml++ 3.3 false, which without assertions is undefined behavior.
// Here they stay on, and throw.
namespace prism::io {
struct FailedAssertion {};
inline void fail_assertion() { throw FailedAssertion(); }
}  // namespace prism::io
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(condition) ((condition) ? void() : ::prism::io::fail_assertion())
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

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
  if (const auto* table = node.as_table()) {
    json object = json::object();
    for (const auto& [key, element] : *table) {
      auto value = to_json(element);
      if (!value) return std::nullopt;
      object[std::string(key.str())] = std::move(*value);
    }
    return object;
  }
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
      entries.push_back({path, section ? std::nullopt : to_json(node), section != nullptr, line});
    }
  }
}

int64_t line_of(std::string_view text, size_t position) {
  return 1 + std::ranges::count(text.substr(0, position), '\n');
}

bool is_ascii(char character) { return static_cast<unsigned char>(character) < 0x80; }

// The position of a non-ASCII character that is outside strings and comments, which TOML forbids, or that comes first
// after a backslash at the end of a line. toml++ 3.3 has undefined behavior for both (its issues 190 and 295).
std::optional<size_t> stray_character(std::string_view text) {
  std::string_view quotes;  // of the current string; empty outside strings
  for (size_t i = 0; i < text.size();) {
    const auto rest = text.substr(i);
    if (quotes.empty() && !is_ascii(rest[0])) return i;
    if (quotes.empty() && rest[0] == '#') {
      i = std::min(text.find('\n', i), text.size());
    } else if (quotes.empty()) {
      for (const std::string_view opening : {"'", "\"", "'''", "\"\"\""}) {
        if (rest.starts_with(opening)) quotes = opening;
      }
      i += std::max<size_t>(quotes.size(), 1);
    } else if (rest.starts_with(quotes)) {
      i += quotes.size();
      // Up to two quotes before the last three belong to the text.
      for (int extra = 0; quotes.size() == 3 && extra < 2 && i < text.size() && text[i] == quotes[0]; ++extra) ++i;
      quotes = {};
    } else if (quotes[0] == '"' && rest[0] == '\\') {
      const auto next = text.find_first_not_of(" \t\r\n", i + 1);
      if (next != std::string::npos && next > i + 1 && !is_ascii(text[next])) return next;
      i += 2;
    } else {
      if (quotes.size() == 1 && rest[0] == '\n') quotes = {};
      ++i;
    }
  }
  return std::nullopt;
}

// A path of a hundred thousand parts would overflow the stack inside the parser.
std::optional<size_t> line_with_too_many_dots(std::string_view text) {
  for (size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    if (std::ranges::count(text.substr(begin, end - begin), '.') > kMaxDots) return begin;
    begin = end + 1;
  }
  return std::nullopt;
}

void check_text(std::string_view text, std::string_view where) {
  if (text.size() > kMaxBytes) {
    throw Error(fmt::format("{}: expected at most {} bytes, got {}; is this a configuration file?", where, kMaxBytes,
                            text.size()));
  }
  if (const auto at = line_with_too_many_dots(text)) {
    throw Error(fmt::format("{}:{}: more than {} dots in one line", where, line_of(text, *at), kMaxDots));
  }
  if (const auto at = stray_character(text)) {
    throw Error(
        fmt::format("{}:{}: invalid TOML: a non-ASCII character is outside quotes, or comes first after a backslash at "
                    "the end of a line",
                    where, line_of(text, *at)));
  }
}

// The text with each non-ASCII byte written in ASCII; line numbers stay the same.
std::string in_ascii(std::string_view text) {
  std::string result;
  for (const char character : text) {
    if (is_ascii(character)) {
      result += character;
    } else {
      result += fmt::format("_{:02x}", static_cast<unsigned char>(character));
    }
  }
  return result;
}

// stray_character() is correct only for valid TOML, and toml++ is safe only for ASCII. So the first parse, of ASCII,
// refuses invalid TOML, and the second reads the text.
toml::table parse_safely(std::string_view text, std::string_view where) {
  check_text(text, where);
  try {
    if (!std::ranges::all_of(text, is_ascii)) std::ignore = toml::parse(in_ascii(text));
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw Error(fmt::format("{}:{}: invalid TOML: {}", where, error.source().begin.line, error.description()));
  } catch (const FailedAssertion&) {
    throw Error(fmt::format("{}: invalid TOML", where));
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
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::vector<TomlEntry> entries;
  flatten(parse_safely(text, where), "", entries);
  std::ranges::stable_sort(entries, {}, &TomlEntry::line);
  refuse_twice(entries, where);
  return entries;
}

std::optional<json> parse_toml_value(std::string_view text) {
  try {
    const auto table = parse_safely(fmt::format("value = {}", text), "");
    const auto* node = table.get("value");
    return table.size() == 1 ? to_json(*node) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string toml_text(const json& value) {
  if (value.is_object()) {
    std::vector<std::string> entries;
    for (const auto& [key, element] : value.items())
      entries.push_back(fmt::format("{} = {}", toml_key(key), toml_text(element)));
    return fmt::format("{{{}}}", fmt::join(entries, ", "));
  }
  if (value.is_array()) {
    std::vector<std::string> elements;
    for (const auto& element : value) elements.push_back(toml_text(element));
    return fmt::format("[{}]", fmt::join(elements, ","));
  }
  // JSON is valid TOML except for DEL, which TOML requires to be escaped; in JSON it occurs only inside strings.
  std::string text;
  for (const char character : value.dump()) text += character == '\x7f' ? "\\u007f" : std::string(1, character);
  return text;
}

std::string toml_key(std::string_view key) {
  const auto is_bare = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; };
  return !key.empty() && std::ranges::all_of(key, is_bare) ? std::string(key) : toml_text(key);
}

}  // namespace prism::io
