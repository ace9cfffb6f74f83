#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace prism::io {

// Strict JSON: valid UTF-8, no comments, no byte-order mark, no key twice in one object, at most 128 levels deep.
// Anything else throws prism::Error whose message begins with `where`.
nlohmann::json parse_json(std::string_view text, std::string_view where);

// The text in JSON's quotes and escapes, for messages: broken UTF-8 is shown as U+FFFD, and long text is cut.
std::string quote(std::string_view text);

}  // namespace prism::io
