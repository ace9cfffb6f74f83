#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace prism::report {

// Returns the asset with each {{name}} replaced by its value. A {{…}} inside a value is left as it is.
std::string fill_template(std::string_view asset_name, const std::map<std::string_view, std::string>& values);

// Returns the text with &, < and > escaped.
std::string escaped_html(std::string_view text);

// Returns the start of every page: content security policy, icon, title and style.
std::string page_head(std::string_view title);

// Returns JSON that is safe inside a script element. Only "<" can end the element or open a comment, so it is written
// as \u003c.
std::string escaped_json(const nlohmann::json& document);

}  // namespace prism::report
