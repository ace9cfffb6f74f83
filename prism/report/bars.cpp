#include "prism/report/bars.h"

#include "prism/io/atomic_file.h"
#include "prism/report/template.h"

namespace prism::report {

void write(const BarPage& page, const std::filesystem::path& file) {
  nlohmann::json groups = nlohmann::json::array();
  for (const auto& group : page.groups) {
    nlohmann::json bars = nlohmann::json::array();
    for (const auto& bar : group.bars)
      bars.push_back({{"name", bar.name}, {"value", bar.value}, {"marked", bar.marked}});
    groups.push_back({{"name", group.name}, {"detail", group.detail}, {"bars", bars}});
  }
  io::write_file_atomically(file, fill_template("bars.html", {{"head", page_head(page.title)},
                                                              {"title", escaped_html(page.title)},
                                                              {"text", escaped_html(page.text)},
                                                              {"document", escaped_json(groups)}}));
}

}  // namespace prism::report
