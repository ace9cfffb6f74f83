#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "prism/io/atomic_file.h"
#include "prism/io/file.h"
#include "prism/io/json.h"

namespace prism::io {

// A struct lists its fields once, and is written to JSON and read from it by that list:
//
//   void fields(auto& json, Timing& timing) {
//     json("seconds", timing.seconds)("note?", timing.note);  // ?: left out when empty, 0 or false
//   }
//
// A field is a number, text, an enumeration (`words` names its values in order), a list, a map from text, an optional
// value, a struct with `fields`, or JSON itself. A number that is not finite is written as null, and null is read as
// NaN; an optional value of another type is null when there is none.

enum class UnknownKeys { Ignored, Refused };

// The place of a value, for messages: "report: runs[3].train.loss". Made for every value, so it refers to its parent and
// builds the text only when asked.
struct JsonPlace {
  std::string_view who;
  UnknownKeys unknown = UnknownKeys::Ignored;
  const JsonPlace* parent = nullptr;
  std::string_view key = {};  // empty: an element of a list
  size_t index = 0;

  JsonPlace at(std::string_view name) const { return {who, unknown, this, name}; }
  JsonPlace at(size_t element) const { return {who, unknown, this, {}, element}; }
  std::string path() const;
  [[noreturn]] void refuse(std::string_view problem) const;  // throws prism::Error
  [[noreturn]] void refuse(std::string_view expected, const nlohmann::json& found) const;
};

template <class T>
nlohmann::json to_json(const T& value);

// Throws prism::Error that begins with `who` and names the place of the first key that is missing or has a value of
// another type.
template <class T>
T from_json(const nlohmann::json& value, std::string_view who, UnknownKeys unknown = UnknownKeys::Ignored);

template <class T>
T read_json(const std::filesystem::path& file) {
  return from_json<T>(parse_json(read_file(file), file.string()), file.string());
}
template <class T>
void write_json(const T& value, const std::filesystem::path& file) {
  write_file_atomically(file, to_json(value).dump(2) + "\n");
}

namespace detail {

template <class T, template <class...> class Template>
inline constexpr bool kIs = false;
template <class... A, template <class...> class Template>
inline constexpr bool kIs<Template<A...>, Template> = true;

template <class T>
inline constexpr bool kIsReal = std::is_same_v<T, double> || std::is_same_v<T, std::optional<double>>;

template <class T>
bool is_empty(const T& field) {
  if constexpr (kIs<T, std::optional>) return !field.has_value();
  if constexpr (requires { field.empty(); }) return field.empty();
  if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) return field == T();
  return false;
}

template <class T>
void read(const nlohmann::json& value, T& field, const JsonPlace& place);

}  // namespace detail

class JsonWriter {
 public:
  template <class T>
  JsonWriter& operator()(std::string_view name, const T& field) {
    const bool optional = name.ends_with('?');
    if (!optional || !detail::is_empty(field)) object_[std::string(name, 0, name.size() - optional)] = to_json(field);
    return *this;
  }
  nlohmann::json object() && { return std::move(object_); }

 private:
  nlohmann::json object_ = nlohmann::json::object();
};

class JsonReader {
 public:
  JsonReader(const nlohmann::json& object, const JsonPlace& place);

  template <class T>
  JsonReader& operator()(std::string_view name, T& field) {
    const bool optional = name.ends_with('?');
    name.remove_suffix(optional);
    const auto* value = find(name);
    if (value == nullptr && !optional) place_.at(name).refuse("missing");
    if (value != nullptr && !(optional && value->is_null() && !detail::kIsReal<T>))
      detail::read(*value, field, place_.at(name));
    return *this;
  }
  void finish() const;  // refuses keys that no field has

 private:
  const nlohmann::json* find(std::string_view name);

  const nlohmann::json& object_;
  const JsonPlace& place_;
  std::set<std::string, std::less<>> known_;
};

template <class T>
nlohmann::json to_json(const T& value) {
  using nlohmann::json;
  if constexpr (std::is_enum_v<T>) {
    return words(value)[static_cast<size_t>(value)];
  } else if constexpr (std::is_same_v<T, double>) {
    return std::isfinite(value) ? json(value) : json();
  } else if constexpr (detail::kIs<T, std::optional>) {
    return value ? to_json(*value) : json();
  } else if constexpr (detail::kIs<T, std::vector>) {
    json list = json::array();
    for (const auto& element : value) list.push_back(to_json(element));
    return list;
  } else if constexpr (detail::kIs<T, std::map>) {
    json object = json::object();
    for (const auto& [key, element] : value) object[key] = to_json(element);
    return object;
  } else if constexpr (requires(JsonWriter & writer, T & field) { fields(writer, field); }) {
    JsonWriter writer;
    fields(writer, const_cast<T&>(value));  // which the writer does not change
    return std::move(writer).object();
  } else {
    return value;
  }
}

template <class T>
void detail::read(const nlohmann::json& value, T& field, const JsonPlace& place) {
  const auto expect = [&](bool holds, const char* expected) {
    if (!holds) place.refuse(expected, value);
  };
  if constexpr (std::is_enum_v<T>) {
    const auto names = words(field);
    std::string list;
    for (size_t i = 0; i < names.size(); ++i) {
      if (value.is_string() && value.template get_ref<const std::string&>() == names[i])
        return void(field = static_cast<T>(i));
      list += (list.empty() ? "one of \"" : ", \"") + std::string(names[i]) + '"';
    }
    place.refuse(list, value);
  } else if constexpr (std::is_same_v<T, bool>) {
    expect(value.is_boolean(), "true or false");
    field = value;
  } else if constexpr (std::is_same_v<T, int64_t>) {
    expect(value.is_number_integer() && (!value.is_number_unsigned() || value.template get<uint64_t>() <= INT64_MAX),
           "an integer");
    field = value;
  } else if constexpr (std::is_same_v<T, double>) {
    expect(value.is_number() || value.is_null(), "a number or null");
    field = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
  } else if constexpr (std::is_same_v<T, std::string>) {
    expect(value.is_string(), "text");
    field = value;
  } else if constexpr (detail::kIs<T, std::optional>) {
    if (value.is_null() && !detail::kIsReal<T>) return field.reset();
    read(value, field.emplace(), place);
  } else if constexpr (detail::kIs<T, std::vector>) {
    expect(value.is_array(), "a list");
    field.resize(value.size());
    for (size_t i = 0; i < value.size(); ++i) read(value[i], field[i], place.at(i));
  } else if constexpr (detail::kIs<T, std::pair>) {
    expect(value.is_array() && value.size() == 2, "a name and a value");
    read(value[0], field.first, place.at(size_t{0}));
    read(value[1], field.second, place.at(size_t{1}));
  } else if constexpr (detail::kIs<T, std::map>) {
    expect(value.is_object(), "an object");
    for (const auto& [key, element] : value.items()) read(element, field[key], place.at(key));
  } else if constexpr (std::is_same_v<T, nlohmann::json>) {
    field = value;
  } else {
    JsonReader reader(value, place);
    fields(reader, field);
    reader.finish();
  }
}

template <class T>
T from_json(const nlohmann::json& value, std::string_view who, UnknownKeys unknown) {
  T result;
  detail::read(value, result, {who, unknown});
  return result;
}

}  // namespace prism::io
