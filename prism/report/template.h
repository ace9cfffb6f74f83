#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace prism::report {

// The bytes of a file of prism/report/assets.
std::string_view asset(std::string_view name);

// The asset with each {{name}} replaced, in one pass: what is put in is not looked at again.
std::string filled(std::string_view asset_name, const std::map<std::string_view, std::string>& values);

std::string escaped_html(std::string_view text);

// What every page begins with, up to its style: what it may load, its icon and its title.
std::string page_head(std::string_view title);

// JSON inside a script element: only "<" can end the element or open a comment, and JSON has another way to write it.
std::string escaped_json(const nlohmann::json& document);

}  // namespace prism::report
