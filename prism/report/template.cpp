#include "prism/report/template.h"

#include <algorithm>
#include <stdexcept>

#include "prism/report/assets.h"

namespace prism::report {
namespace {

std::string_view asset(std::string_view name) {
  const auto all = assets();
  const auto found = std::ranges::find(all, name, &io::EmbeddedFile::name);
  if (found == all.end()) throw std::logic_error("report: no asset " + std::string(name));
  return found->bytes;
}

}  // namespace

std::string escaped_html(std::string_view text) {
  std::string result;
  for (const char c : text) result += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return result;
}

std::string escaped_json(const nlohmann::json& document) {
  std::string result;
  for (const char c : document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)) {
    c == '<' ? result += "\\u003c" : result += c;
  }
  return result;
}

std::string fill_template(std::string_view asset_name, const std::map<std::string_view, std::string>& values) {
  const auto text = asset(asset_name);
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const auto open = std::min(text.find("{{", at), text.size());
    result += text.substr(at, open - at);
    if (open == text.size()) break;
    const auto close = text.find("}}", open);
    result += values.at(text.substr(open + 2, close - open - 2));
    at = close + 2;
  }
  return result;
}

std::string page_head(std::string_view title) {
  return fill_template("head.html", {{"title", escaped_html(title)}, {"style", std::string(asset("style.css"))}});
}

}  // namespace prism::report
