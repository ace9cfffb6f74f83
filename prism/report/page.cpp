#include "prism/report/page.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "prism/io/atomic_file.h"
#include "prism/report/assets.h"
#include "prism/report/document.h"
#include "prism/report/thin.h"

namespace prism::report {

namespace {

std::string_view asset(std::string_view name) {
  const auto all = assets();
  const auto found = std::ranges::find(all, name, &Asset::name);
  if (found == all.end()) throw std::logic_error("report: no asset " + std::string(name));
  return found->bytes;
}

std::string scripts() {
  std::string text;
  for (const auto& [name, bytes] : assets()) {
    if (name.ends_with(".js")) text.append(bytes).append("\n");
  }
  return text;
}

std::string escaped_html(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

// JSON inside a script element: only "<" can end the element or open a comment, and JSON has another way to write it.
std::string escaped_json(const nlohmann::json& document) {
  std::string result;
  for (const char c : document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)) {
    c == '<' ? result += "\\u003c" : result += c;
  }
  return result;
}

// Replaces each {{name}} of the template, in one pass: what is put in is not looked at again.
std::string filled(std::string_view text, const std::map<std::string_view, std::string>& values) {
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

}  // namespace

Page::Page(nlohmann::json document) : document_(std::move(document)) {
  check_document(document_);
  for (auto& run : document_.at("runs")) thin_run(run);
}

std::string Page::html() const {
  return filled(asset("page.html"), {{"title", escaped_html(document_.at("title").get<std::string>())},
                                     {"style", std::string(asset("style.css"))},
                                     {"script", scripts()},
                                     {"document", escaped_json(document_)}});
}

void Page::write(const std::filesystem::path& file) const { io::write_file_atomically(file, html()); }

}  // namespace prism::report
