// For tests against other programs:
//   report_tool events FOLDER FIRST_STEP < LINES   writes an event file; each line is an object with "step" and either
//                                                  "scalars" (an object of numbers) or "tag" and "text"
//   report_tool page DOCUMENT.json OUT.html        writes the page of a document
// Refused input gives exit status 2 and a message.
#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "prism/io/error.h"
#include "prism/io/json_lines.h"
#include "prism/report/event_writer.h"
#include "prism/report/page_fields.h"

namespace {

using nlohmann::json;

std::string standard_input() { return {std::istreambuf_iterator<char>(std::cin), {}}; }

void write_events(const std::string& folder, int64_t first_step) {
  prism::report::EventWriter writer(folder, first_step);
  prism::io::visit_json_lines(standard_input(), "standard input", [&](const json& line, int64_t) {
    const auto step = line.at("step").get<int64_t>();
    if (line.contains("text")) {
      writer.text(line.at("tag").get<std::string>(), step, line.at("text").get<std::string>());
      return;
    }
    prism::report::Scalars scalars;
    for (const auto& [tag, value] : line.at("scalars").items()) {
      scalars.emplace_back(tag, value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
    }
    writer.scalars(step, scalars);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() == 3 && arguments[0] == "events") {
      write_events(arguments[1], std::stoll(arguments[2]));
    } else if (arguments.size() == 3 && arguments[0] == "page") {
      const auto document = prism::io::parse_json(prism::io::read_file(arguments[1]), arguments[1]);
      prism::report::write(
          prism::io::from_json<prism::report::PageDocument>(document, "report", prism::io::UnknownKeys::Refused),
          arguments[2]);
    } else {
      throw prism::Error("expected: report_tool events FOLDER FIRST_STEP | page DOCUMENT.json OUT.html");
    }
  } catch (const prism::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
