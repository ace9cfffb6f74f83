#include "prism/report/page.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ctime>
#include <set>

#include "prism/io/atomic_file.h"
#include "prism/io/json.h"
#include "prism/io/json_fields.h"
#include "prism/report/assets.h"
#include "prism/report/page_fields.h"
#include "prism/report/template.h"
#include "prism/report/thin.h"

namespace prism::report {
namespace {

using Place = io::JsonPlace;

void expect_length(size_t length, size_t expected, const Place& place) {
  if (length == expected) return;
  place.refuse(fmt::format("expected {} numbers, as in the lists beside it, got {}", expected, length));
}

// An empty list is valid: the page leaves it out.
void expect_length_if_any(const auto& list, size_t expected, const Place& place) {
  if (!list.empty()) expect_length(list.size(), expected, place);
}

void expect_ascending(const std::vector<int64_t>& steps, const Place& place) {
  for (size_t i = 1; i < steps.size(); ++i) {
    if (steps[i] <= steps[i - 1])
      place.at(i).refuse(fmt::format("expected more than {}, got {}", steps[i - 1], steps[i]));
  }
}

void check(const LossCurve& curve, const Place& place) {
  const size_t points = curve.step.size();
  expect_ascending(curve.step, place.at("step"));
  expect_length_if_any(curve.tokens, points, place.at("tokens"));
  expect_length_if_any(curve.seconds, points, place.at("seconds"));
  expect_length(curve.loss.size(), points, place.at("loss"));
  expect_length_if_any(curve.low, points, place.at("low"));
  expect_length_if_any(curve.high, points, place.at("high"));
}

void check(const PageRun& run, const Place& place) {
  if (!(run.lr >= 0)) place.at("lr").refuse("0 or more", run.lr);
  check(run.train, place.at("train"));
  check(run.val, place.at("val"));
  expect_ascending(run.norms.step, place.at("norms").at("step"));
  expect_length(run.norms.weight.size(), run.norms.step.size(), place.at("norms").at("weight"));
  for (size_t i = 0; i < run.spectra.size(); ++i) {
    const auto& [snr, gain, theory] = std::tie(run.spectra[i].snr, run.spectra[i].gain, run.spectra[i].theory);
    const size_t directions = std::max({snr.size(), gain.size(), theory.size()});
    const auto spectra = place.at("spectra"), record = spectra.at(i);
    expect_length_if_any(snr, directions, record.at("snr"));
    expect_length_if_any(gain, directions, record.at("gain"));
    expect_length_if_any(theory, directions, record.at("theory"));
  }
}

// Checks that ids of optimizers are unique and that every other id is one of them.
void check_ids(const PageDocument& document, const Place& root) {
  std::set<std::string> ids;
  for (const auto& optimizer : document.optimizers) {
    if (!ids.insert(optimizer.id).second)
      root.at("optimizers").refuse(fmt::format("two optimizers have the id {}", io::quote(optimizer.id)));
  }
  const auto expect_known = [&](const std::string& id, const Place& place) {
    if (ids.contains(id)) return;
    place.refuse(fmt::format("no optimizer has the id {}; known ids: {}", io::quote(id),
                             ids.empty() ? "none" : fmt::format("{}", fmt::join(ids, ", "))));
  };
  const auto expect_all_known = [&](const auto& list, const Place& place) {
    for (size_t i = 0; i < list.size(); ++i) {
      const auto element = place.at(i);
      expect_known(list[i].optimizer, element.at("optimizer"));
    }
  };
  if (!document.baseline.empty()) expect_known(document.baseline, root.at("baseline"));
  const auto published = root.at("published");
  expect_all_known(document.runs, root.at("runs"));
  expect_all_known(document.published.values, published.at("values"));
  expect_all_known(document.routing, root.at("routing"));
  expect_all_known(document.samples, root.at("samples"));
}

void check(const PageDocument& document) {
  const Place root{"report"}, runs = root.at("runs");
  if (document.confidence && !(*document.confidence > 0 && *document.confidence < 1))
    root.at("confidence").refuse("a number in (0, 1)", *document.confidence);
  for (size_t i = 0; i < document.runs.size(); ++i) check(document.runs[i], runs.at(i));
  check_ids(document, root);
}

std::string scripts() {
  std::string text;
  for (const auto& [name, bytes] : assets()) {
    if (name.ends_with(".js")) text.append(bytes).append("\n");
  }
  return text;
}

}  // namespace

std::string html(PageDocument document) {
  check(document);
  for (auto& run : document.runs) thin_run(run);
  return fill_template(
      "page.html",
      {{"head", page_head(document.title)}, {"script", scripts()}, {"document", escaped_json(io::to_json(document))}});
}

void write(PageDocument document, const std::filesystem::path& file) {
  if (document.program.empty()) document.program = "prism " PRISM_VERSION;
  if (document.created.empty())
    document.created = fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)));
  io::write_file_atomically(file, html(std::move(document)));
}

}  // namespace prism::report
