#include "prism/io/json_fields.h"

#include <fmt/format.h>

#include "prism/io/error.h"

namespace prism::io {

std::string JsonPlace::path() const {
  if (parent == nullptr) return "";
  const auto before = parent->path();
  if (key.empty()) return fmt::format("{}[{}]", before, index);
  return before.empty() ? std::string(key) : fmt::format("{}.{}", before, key);
}

void JsonPlace::refuse(std::string_view problem) const {
  throw Error(fmt::format("{}: {}: {}", who, parent == nullptr ? "document" : path(), problem));
}

void JsonPlace::refuse(std::string_view expected, const nlohmann::json& found) const {
  refuse(fmt::format("expected {}, got {}", expected, found.is_structured() ? found.type_name() : quote(found.dump())));
}

JsonReader::JsonReader(const nlohmann::json& object, const JsonPlace& place) : object_(object), place_(place) {
  if (!object.is_object()) place.refuse("an object", object);
}

const nlohmann::json* JsonReader::find(std::string_view name) {
  known_.emplace(name);
  const auto found = object_.find(name);
  return found == object_.end() ? nullptr : &*found;
}

void JsonReader::finish() const {
  if (place_.unknown == UnknownKeys::Ignored) return;
  for (const auto& [key, value] : object_.items()) {
    if (!known_.contains(key)) place_.refuse("unknown key " + quote(key));
  }
}

}  // namespace prism::io
