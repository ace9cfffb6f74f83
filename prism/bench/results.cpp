#include "prism/bench/results.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <cmath>
#include <ctime>

#include "prism/bench/timing.h"
#include "prism/io/atomic_file.h"
#include "prism/io/error.h"
#include "prism/io/file.h"
#include "prism/io/json.h"
#include "prism/report/bars.h"

namespace prism::bench {
namespace {

using nlohmann::json;

constexpr int kLevels = 3;  // step_ms, model, name; values below are replaced as a whole

void merge_into(json& old, const json& figures, int levels) {
  if (levels == 0 || !figures.is_object() || !old.is_object()) {
    old = figures;
    return;
  }
  for (const auto& [key, value] : figures.items()) merge_into(old[key], value, levels - 1);
}

// Rounds all numbers to four decimals, the resolution of the measurements.
json rounded(json value) {
  if (value.is_structured()) {
    for (auto& part : value) part = rounded(std::move(part));
  } else if (value.is_number_float()) {
    value = std::round(value.get<double>() * 1e4) / 1e4;
  }
  return value;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  return fmt::format("{:%Y-%m-%d}", *std::localtime(&now));
}

}  // namespace

ResultsFile::ResultsFile(const std::filesystem::path& file, at::Device device)
    : file_(file), document_(json::object()) {
  { const io::AtomicFile probe(file); }  // throws if the file cannot be written
  if (std::filesystem::exists(file)) document_ = io::parse_json(io::read_file(file), file.string());
  if (!document_.is_object())
    throw Error(fmt::format("{}: expected an object of figures, got {}", file.string(), document_.type_name()));
  const auto name = device_name(device);
  if (const auto old = document_.value("device", name); old != name)
    throw Error(fmt::format("{}: expected figures of {}, got {}; choose another file", file.string(), name, old));
  document_["device"] = name;
}

void ResultsFile::merge(const json& figures) {
  document_["torch"] = TORCH_VERSION;
  document_["date"] = today();
  merge_into(document_, rounded(figures), kLevels);
  io::write_file_atomically(file_, document_.dump(2) + "\n");
}

json step_figures(const std::string& model, const std::vector<StepTime>& rows, const std::optional<Peak>& peak) {
  json steps = json::object(), details = json::object();
  for (const auto& row : rows) {
    steps[row.name] = row.best_ms();
    details[row.name] = row.to_json(peak);
  }
  return {{"step_ms", {{model, steps}}}, {"details", {{model, details}}}};
}

void write_page(const std::filesystem::path& file, const std::string& device, const std::vector<PageModel>& models) {
  report::BarPage page{"One optimizer step",
                       fmt::format("{}, torch {}, {}. Milliseconds for all hidden matrices of a model (…_rest: all "
                                   "other parameters), without computing gradients; float32 weights; the faster of "
                                   "eager and captured in a CUDA graph. Colored bars are Prism's.",
                                   device, TORCH_VERSION, today()),
                       {}};
  for (const auto& model : models) {
    report::BarGroup group{model.name, model.detail, {}};
    for (const auto& row : model.rows) group.bars.push_back({row.name, row.best_ms(), row.ours});
    page.groups.push_back(std::move(group));
  }
  report::write(page, file);
}

}  // namespace prism::bench
