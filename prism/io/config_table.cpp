#include "prism/io/config_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

#include "prism/io/config_toml.h"
#include "prism/io/json.h"
#include "prism/io/spelling.h"

namespace prism::io {

namespace {

using nlohmann::json;

std::string last_part(std::string_view name) { return std::string(name.substr(name.rfind('.') + 1)); }

std::string in_markdown(std::string_view text) {
  std::string cell;
  for (const char character : text) cell += character == '|' ? "\\|" : std::string(1, character);
  return cell;
}

constexpr double kMostWeight = 1e6;  // the windows of an epoch are counted in 64 bits

std::optional<json> accept_weighted_path(const json& value) {
  if (value.is_string()) return value;
  if (!value.is_object() || !value.contains("path") || !value["path"].is_string()) return std::nullopt;
  if (value.size() == 1) return value["path"];
  const auto weight = value.find("weight");
  if (value.size() != 2 || weight == value.end() || !weight->is_number()) return std::nullopt;
  const auto number = weight->get<double>();
  if (!(number > 0 && number <= kMostWeight)) return std::nullopt;
  return number == 1 ? value["path"] : json{{"path", value["path"]}, {"weight", number}};
}

std::vector<json> words_between_commas(std::string_view text) {
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  std::vector<json> words;
  for (const auto& part : split(text, ',')) {
    const auto begin = std::min(part.find_first_not_of(' '), part.size());
    const auto word = part.substr(begin, part.find_last_not_of(' ') + 1 - begin);
    const auto quoted = parse_toml_value(word);
    words.emplace_back(quoted && quoted->is_string() ? *quoted : json(word));
  }
  return words;
}

}  // namespace

ConfigKey ConfigKey::bounded(const char* relation, double bound, std::function<bool(double, double)> holds) {
  const auto check = [bound, holds = std::move(holds)](const Json& value) { return holds(value.get<double>(), bound); };
  element_checks_.push_back({fmt::format("{} {}", relation, bound), check});
  return std::move(*this);
}

ConfigKey ConfigKey::at_least(double bound) && { return bounded("≥", bound, std::greater_equal<>()); }
ConfigKey ConfigKey::above(double bound) && { return bounded(">", bound, std::greater<>()); }
ConfigKey ConfigKey::at_most(double bound) && { return bounded("≤", bound, std::less_equal<>()); }
ConfigKey ConfigKey::below(double bound) && { return bounded("<", bound, std::less<>()); }

ConfigKey ConfigKey::one_of(std::vector<std::string> choices) && {
  if (kind_ != Kind::String) throw std::logic_error(name_ + ": one_of is for strings");
  choices_ = std::move(choices);
  return std::move(*this);
}

ConfigKey ConfigKey::length(size_t least, size_t most) && {
  length_ = least == most ? fmt::format("{} ", least) : fmt::format("{} to {} ", least, most);
  checks_.push_back({"", [=](const Json& value) { return value.size() >= least && value.size() <= most; }});
  return std::move(*this);
}

ConfigKey ConfigKey::length(size_t exactly) && { return std::move(*this).length(exactly, exactly); }

ConfigKey ConfigKey::must(std::string be, std::function<bool(const Json&)> check) && {
  checks_.push_back({std::move(be), std::move(check)});
  return std::move(*this);
}

ConfigKey ConfigKey::or_word(std::string word) && {
  words_.push_back(std::move(word));
  return std::move(*this);
}

std::string ConfigKey::expected() const {
  static constexpr const char* kOne[] = {"an integer", "a real number", "true or false", "a string",
                                         "a path, or {path = \"…\", weight = …} with a weight > 0 and ≤ 1e6"};
  static constexpr const char* kMany[] = {"integers", "real numbers", "true or false", "strings",
                                          "paths, or {path = \"…\", weight = …} with a weight > 0 and ≤ 1e6"};
  const auto kind = static_cast<size_t>(kind_);
  std::string text = depth_ == 0 ? kOne[kind] : kMany[kind];
  if (!choices_.empty()) text = fmt::format("one of \"{}\"", fmt::join(choices_, "\", \""));
  const char* between = " ";
  for (const auto& check : element_checks_) text += std::exchange(between, " and ") + check.expected;
  if (depth_ == 2) text = "lists of " + text;
  if (depth_ > 0) text = fmt::format("a list of {}{}", length_, text);
  for (const auto& check : checks_) text += check.expected.empty() ? "" : ", " + check.expected;
  for (const auto& word : words_) text += fmt::format(", or \"{}\"", word);
  return text;
}

std::vector<std::string> ConfigKey::words() const {
  auto words = choices_;
  if (kind_ == Kind::Boolean) words = {"true", "false"};
  words.insert(words.end(), words_.begin(), words_.end());
  return words;
}

std::optional<json> ConfigKey::accept(const Json& value) const {
  if (value.is_string() && std::ranges::count(words_, value.get_ref<const std::string&>()) > 0) return value;
  auto accepted = accept(value, depth_);
  const bool allowed = accepted && std::ranges::all_of(checks_, [&](const Check& c) { return c.holds(*accepted); });
  return allowed ? accepted : std::nullopt;
}

std::optional<json> ConfigKey::accept(const Json& value, int depth) const {
  if (depth > 0) {
    if (!value.is_array()) return std::nullopt;
    Json list = Json::array();
    for (const auto& element : value) {
      auto accepted = accept(element, depth - 1);
      if (!accepted) return std::nullopt;
      list.push_back(std::move(*accepted));
    }
    return list;
  }
  if (kind_ == Kind::WeightedPath) return accept_weighted_path(value);
  if (kind_ == Kind::Integer && value.is_number_float()) {  // 8.0 and 1e3 are integers too
    constexpr double kExact = 1LL << 53;
    const auto real = value.get<double>();
    return real == std::trunc(real) && std::abs(real) <= kExact ? accept(static_cast<int64_t>(real), depth)
                                                                : std::nullopt;
  }
  const bool of_kind = kind_ == Kind::Integer   ? value.is_number_integer()
                       : kind_ == Kind::Real    ? value.is_number() && std::isfinite(value.get<double>())
                       : kind_ == Kind::Boolean ? value.is_boolean()
                                                : value.is_string();
  if (!of_kind) return std::nullopt;
  if (!choices_.empty() && std::ranges::count(choices_, value.get_ref<const std::string&>()) == 0) return std::nullopt;
  const bool allowed = std::ranges::all_of(element_checks_, [&](const Check& check) { return check.holds(value); });
  if (!allowed) return std::nullopt;
  return kind_ == Kind::Real ? Json(value.get<double>()) : value;
}

json ConfigKey::from_text(std::string_view text) const {
  const auto value = parse_toml_value(text);
  const auto is_word = [&](std::string_view one) { return std::ranges::count(words_, one) > 0; };
  if (is_word(text)) return text;
  if (value && value->is_string() && is_word(value->get_ref<const std::string&>())) return *value;
  if (depth_ == 0) return value && (kind_ != Kind::String || value->is_string()) ? *value : Json(text);
  if (value && (value->is_array() || value->is_string())) return value->is_array() ? *value : Json::array({*value});
  if (const auto list = parse_toml_value(fmt::format("[{}]", text)); list && !text.starts_with('[')) return *list;
  return (kind_ == Kind::String || kind_ == Kind::WeightedPath) && depth_ == 1 ? Json(words_between_commas(text))
                                                                               : Json(text);
}

std::string section_of(std::string_view key) {
  const auto dot = key.rfind('.');
  return std::string(key.substr(0, dot == std::string::npos ? 0 : dot));
}

ConfigTable::ConfigTable(std::vector<ConfigKey> keys, std::string override_section)
    : keys_(std::move(keys)), override_section_(std::move(override_section)) {
  std::set<std::string> names;
  for (auto& key : keys_) {
    const auto& name = key.name();
    if (section_of(name).empty() || last_part(name).empty()) throw std::logic_error(name + ": expected section.key");
    if (!names.insert(name).second) throw std::logic_error(name + ": declared twice");
    if (key.fallback().is_null()) continue;
    const auto accepted = key.accept(key.fallback());
    if (!accepted) {
      throw std::logic_error(fmt::format("{}: the default {} is not {}", name, key.fallback().dump(), key.expected()));
    }
    key.fallback_ = *accepted;
  }
}

const ConfigKey* ConfigTable::find(std::string_view name) const {
  const auto found = std::ranges::find(keys_, name, &ConfigKey::name);
  return found == keys_.end() ? nullptr : &*found;
}

bool ConfigTable::is_section(std::string_view name) const {
  const auto prefix = std::string(name) + '.';
  return std::ranges::any_of(keys_, [&](const ConfigKey& key) { return key.name().starts_with(prefix); }) ||
         (override_section_ + '.').starts_with(prefix);
}

std::vector<std::string> ConfigTable::sections() const {
  std::vector<std::string> sections;
  for (const auto& key : keys_) {
    const auto section = section_of(key.name());
    if (std::ranges::count(sections, section) == 0) sections.push_back(section);
  }
  return sections;
}

std::string ConfigTable::nearest(std::string_view name) const {
  constexpr size_t kEnough = 80;  // letters; bounds the time for absurd names
  const auto distance = [&](const ConfigKey& key) {
    const size_t letters = edit_distance(name.substr(0, kEnough), key.name());
    return last_part(key.name()) == last_part(name) ? std::min<size_t>(letters, 1) : letters;
  };
  const auto nearest = std::ranges::min_element(keys_, {}, distance);
  return nearest == keys_.end() ? "" : nearest->name();
}

std::string ConfigTable::markdown() const {
  std::string text;
  for (const auto& section : sections()) {
    text += fmt::format("{}## `{}`\n\n| key | value | default | meaning |\n|---|---|---|---|\n",
                        text.empty() ? "" : "\n", section);
    for (const auto& key : keys_) {
      if (section_of(key.name()) != section) continue;
      const auto fallback = key.fallback().is_null() ? "none" : fmt::format("`{}`", toml_text(key.fallback()));
      text += fmt::format("| `{}` | {} | {} | {} |\n", key.name(), in_markdown(key.expected()), in_markdown(fallback),
                          in_markdown(key.doc()));
    }
  }
  return text;
}

}  // namespace prism::io
