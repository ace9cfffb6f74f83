#include "prism/io/config.h"

#include <fmt/format.h>

#include <stdexcept>

#include "prism/io/config_toml.h"
#include "prism/io/error.h"
#include "prism/io/file.h"
#include "prism/io/json.h"

namespace prism::io {

namespace {

using nlohmann::json;

std::string shown(const json& value) {
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());  // JSON has no inf and nan
  auto text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() <= kMaxShown) return text;
  return value.is_string() ? quote(value.get_ref<const std::string&>()) : "a longer list than is allowed";
}

// nlohmann's get silently converts 1.5 to 1 and true to 1.
bool is_a(const json& value, int64_t) { return value.is_number_integer(); }
bool is_a(const json& value, double) { return value.is_number(); }
bool is_a(const json& value, bool) { return value.is_boolean(); }
bool is_a(const json& value, const std::string&) { return value.is_string(); }

template <typename T>
T one(std::string_view key, const json& value) {
  if (!is_a(value, T())) throw std::logic_error(fmt::format("{}: read as another type than {}", key, shown(value)));
  return value.get<T>();
}

template <typename T>
std::vector<T> many(std::string_view key, const json& value) {
  if (!value.is_array()) throw std::logic_error(fmt::format("{}: read as a list, but it is {}", key, shown(value)));
  std::vector<T> list;
  for (const auto& element : value) list.push_back(one<T>(key, element));
  return list;
}

bool is_utf8(std::string_view text) {
  try {
    return !json(text).dump().empty();
  } catch (const json::type_error&) {
    return false;
  }
}

}  // namespace

Config::Config(ConfigTable table) : table_(std::make_shared<const ConfigTable>(std::move(table))) {}

// --- what the user gives ---

void Config::read_file(const std::filesystem::path& path) { read_toml(io::read_file(path), path.string()); }

void Config::read_toml(std::string_view text, std::string_view where) {
  Config read = *this;  // a file with a mistake changes nothing
  for (const auto& entry : parse_toml(text, where)) {
    const auto origin = fmt::format("{}:{}", where, entry.line);
    if (entry.is_section && !table_->find(entry.path)) {
      read.check_section(entry.path, origin);
    } else if (!entry.value) {
      const auto* key = read.place_of(entry.path, origin).key;
      throw Error(fmt::format("{}: {}: expected {}, got a table, date or time", origin, entry.path, key->expected()));
    } else {
      read.assign(entry.path, *entry.value, origin);
    }
  }
  *this = std::move(read);
}

void Config::set(std::string_view assignment) {
  const auto origin = fmt::format("--set {}", assignment);
  if (!is_utf8(assignment)) throw Error(fmt::format("--set {}: expected valid UTF-8", quote(assignment)));
  const auto equals = assignment.find('=');
  if (equals == std::string::npos) throw Error(fmt::format("{}: expected section.key=value", origin));
  const auto path = assignment.substr(0, equals);
  const auto value = place_of(path, origin).key->from_text(assignment.substr(equals + 1));
  assign(path, value, origin);
}

void Config::assign(std::string_view path, const json& value, std::string_view origin) {
  const auto place = place_of(path, origin);
  const auto accepted = place.key->accept(value);
  if (!accepted) {
    throw Error(fmt::format("{}: {}: expected {}, got {}", origin, path, place.key->expected(), shown(value)));
  }
  auto& settings = place.override_name.empty() ? given_ : overrides_[std::string(place.override_name)];
  settings.insert_or_assign(place.key->name(), Setting{*accepted, std::string(origin)});
}

bool Config::split_override(std::string_view path, std::string_view& name, std::string_view& key) const {
  const auto prefix = table_->override_section() + '.';
  if (prefix.size() == 1 || !path.starts_with(prefix)) return false;
  path.remove_prefix(prefix.size());
  const auto dot = path.find('.');
  name = path.substr(0, dot);
  key = dot == std::string::npos ? "" : path.substr(dot + 1);
  return true;
}

Config::Place Config::place_of(std::string_view path, std::string_view origin) const {
  std::string_view name, key_name = path;
  const bool is_override = split_override(path, name, key_name);
  if (is_override && (name.empty() || key_name.empty())) {
    throw Error(fmt::format("{}: {}: expected {}.NAME.section.key", origin, quote(path), table_->override_section()));
  }
  const auto* key = table_->find(key_name);
  if (!key && table_->is_section(key_name)) {
    throw Error(fmt::format("{}: {} is a section; expected a key in it, such as {}", origin, quote(path),
                            quote(table_->nearest(key_name))));
  }
  if (!key) {
    throw Error(fmt::format("{}: unknown key {}; the nearest known key is {}", origin, quote(path),
                            quote(table_->nearest(key_name))));
  }
  return {key, name};
}

void Config::check_section(std::string_view path, std::string_view origin) const {
  std::string_view name, section = path;
  if (split_override(path, name, section) && section.empty()) return;
  if (table_->is_section(section)) return;
  throw Error(fmt::format("{}: unknown section {}; the nearest known key is {}", origin, quote(path),
                          quote(table_->nearest(section))));
}

// --- what the program reads ---

const ConfigKey& Config::key_of(std::string_view name) const {
  const auto* key = table_->find(name);
  if (!key) throw std::logic_error(fmt::format("{}: no such key in the configuration table", name));
  return *key;
}

const json& Config::value(std::string_view name) const {
  const auto& key = key_of(name);
  if (const auto found = given_.find(name); found != given_.end()) return found->second.value;
  if (!key.fallback().is_null()) return key.fallback();
  throw Error(fmt::format("{}: expected {}, got nothing; give it in the configuration file or with --set {}=…", name,
                          key.expected(), name));
}

int64_t Config::integer(std::string_view key) const { return one<int64_t>(key, value(key)); }
double Config::real(std::string_view key) const { return one<double>(key, value(key)); }
bool Config::boolean(std::string_view key) const { return one<bool>(key, value(key)); }
std::string Config::string(std::string_view key) const { return one<std::string>(key, value(key)); }
std::vector<int64_t> Config::integers(std::string_view key) const { return many<int64_t>(key, value(key)); }
std::vector<double> Config::reals(std::string_view key) const { return many<double>(key, value(key)); }
std::vector<std::string> Config::strings(std::string_view key) const { return many<std::string>(key, value(key)); }

bool Config::has(std::string_view key) const { return is_given(key) || !key_of(key).fallback().is_null(); }

bool Config::is_given(std::string_view key) const { return given_.contains(key_of(key).name()); }

bool Config::is(std::string_view key, std::string_view word) const {
  const auto& current = value(key);
  return current.is_string() && current.get_ref<const std::string&>() == word;
}

void Config::refuse_set(std::string_view key, std::string_view why) const {
  if (origin(key).starts_with("--set ")) throw Error(fmt::format("{}: {}", where(key), why));
}

std::string Config::where(std::string_view key) const {
  const auto found = given_.find(key_of(key).name());
  return found == given_.end() ? fmt::format("{} (default)", key) : fmt::format("{}: {}", found->second.origin, key);
}

std::string Config::origin(std::string_view key) const {
  const auto found = given_.find(key_of(key).name());
  return found == given_.end() ? "default" : found->second.origin;
}

nlohmann::ordered_json Config::section(std::string_view name) const {
  nlohmann::ordered_json values = nlohmann::ordered_json::object();
  for (const auto& key : table_->keys()) {
    if (section_of(key.name()) == name && has(key.name()))
      values[key.name().substr(name.size() + 1)] = value(key.name());
  }
  return values;
}

// --- layers ---

std::vector<std::string> Config::override_names() const {
  std::vector<std::string> names;
  for (const auto& [name, settings] : overrides_) names.push_back(name);
  return names;
}

Config Config::overridden(std::string_view name) const {
  Config result = *this;
  if (const auto found = overrides_.find(name); found != overrides_.end()) {
    for (const auto& [key, setting] : found->second) result.given_.insert_or_assign(key, setting);
  }
  return result;
}

void Config::reset(std::string_view section) {
  std::erase_if(given_, [&](const auto& setting) { return section_of(setting.first) == section; });
  if (section_of(table_->override_section()) == section) overrides_.clear();
}

std::string Config::to_toml() const {
  std::string text;
  for (const auto& section : table_->sections()) {
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    for (const auto& key : table_->keys()) {
      if (section_of(key.name()) != section) continue;
      const auto name = key.name().substr(section.size() + 1);
      text += has(key.name()) ? fmt::format("{} = {}\n", name, toml_text(value(key.name())))
                              : fmt::format("# {} is not given\n", name);
    }
  }
  for (const auto& [name, settings] : overrides_) {
    text += fmt::format("\n[{}.{}]\n", table_->override_section(), toml_key(name));
    for (const auto& [key, setting] : settings) {
      text += fmt::format("{} = {}\n", toml_key(key), toml_text(setting.value));
    }
  }
  return text;
}

}  // namespace prism::io
