// Any text as the document of a report page: refused with prism::Error, or a page that holds the document.
#include <cstdlib>
#include <string>
#include <string_view>

#include "prism/io/error.h"
#include "prism/io/json.h"
#include "prism/report/page.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr std::string_view kBegin = "id=\"document\">", kEnd = "</script>";
  try {
    const auto document = prism::io::parse_json({reinterpret_cast<const char*>(data), size}, "input");
    const std::string html = prism::report::Page(document).html();
    const auto begin = html.find(kBegin), end = html.find(kEnd, begin);
    if (begin == std::string::npos || end == std::string::npos) std::abort();
    const auto shown = nlohmann::json::parse(html.substr(begin + kBegin.size(), end - begin - kBegin.size()));
    if (shown.size() != document.size() || shown.at("summary") != document.at("summary")) std::abort();
  } catch (const prism::Error&) {
  }
  return 0;
}
