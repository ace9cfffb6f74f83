#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace prism::io {

// Parses strict JSON: valid UTF-8, no comments, no byte-order mark, no key twice in one object, at most 128 levels
// deep. Throws prism::Error for anything else; `where` begins the message.
nlohmann::json parse_json(std::string_view text, std::string_view where);

constexpr size_t kMaxShown = 200;  // bytes of the user's text in a message

// Returns the text with JSON's quotes and escapes, for messages. Broken UTF-8 becomes U+FFFD. Text longer than kMaxShown
// is cut.
std::string quote(std::string_view text);

}  // namespace prism::io
