#include "prism/report/page.h"

#include <utility>

#include "prism/io/atomic_file.h"
#include "prism/report/assets.h"
#include "prism/report/document.h"
#include "prism/report/template.h"
#include "prism/report/thin.h"

namespace prism::report {

namespace {

std::string scripts() {
  std::string text;
  for (const auto& [name, bytes] : assets()) {
    if (name.ends_with(".js")) text.append(bytes).append("\n");
  }
  return text;
}

}  // namespace

Page::Page(nlohmann::json document) : document_(std::move(document)) {
  check_document(document_);
  for (auto& run : document_.at("runs")) thin_run(run);
}

std::string Page::html() const {
  return filled("page.html", {{"head", page_head(document_.at("title").get<std::string>())},
                              {"script", scripts()},
                              {"document", escaped_json(document_)}});
}

void Page::write(const std::filesystem::path& file) const { io::write_file_atomically(file, html()); }

}  // namespace prism::report
