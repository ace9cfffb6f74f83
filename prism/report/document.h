#pragma once

#include <nlohmann/json.hpp>

namespace prism::report {

// Checks a page's document against the rules in prism/report/page.h; prism::Error names the first place that breaks
// one.
void check_document(const nlohmann::json& document);

}  // namespace prism::report
