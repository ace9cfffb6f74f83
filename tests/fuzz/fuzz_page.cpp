// Any text as the document of a report page: refused with prism::Error, or a page whose document gives the same page.
#include <cstdlib>
#include <string>
#include <string_view>

#include "prism/io/error.h"
#include "prism/io/json_fields.h"
#include "prism/report/page_fields.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr std::string_view kBegin = "id=\"document\">", kEnd = "</script>";
  try {
    const auto page_of = [](const nlohmann::json& document) {
      return html(
          prism::io::from_json<prism::report::PageDocument>(document, "report", prism::io::UnknownKeys::Refused));
    };
    const auto page = page_of(prism::io::parse_json({reinterpret_cast<const char*>(data), size}, "input"));
    const auto begin = page.find(kBegin), end = page.find(kEnd, begin);
    if (begin == std::string::npos || end == std::string::npos) std::abort();
    const auto shown = nlohmann::json::parse(page.substr(begin + kBegin.size(), end - begin - kBegin.size()));
    if (page_of(shown) != page) std::abort();
  } catch (const prism::Error&) {
  }
  return 0;
}
