#include "prism/reproduce/pool.h"

#include <fmt/format.h>

#include <algorithm>

#include "prism/io/atomic_file.h"
#include "prism/io/error.h"
#include "prism/io/file.h"
#include "prism/io/json.h"

namespace prism::reproduce {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<fs::path> json_files(const fs::path& folder) {
  std::vector<fs::path> files;
  if (!fs::exists(folder)) return files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

json read_result(const fs::path& file) { return io::parse_json(io::read_file(file), file.string()); }

bool is_current(const json& result) { return result.is_object() && result.value("numerics", json()) == kNumerics; }

}  // namespace

Pool::Pool(fs::path folder) : folder_(std::move(folder)) {
  for (const auto& file : json_files(folder_ / "results")) {
    const auto result = read_result(file);
    auto run = stored_run_from_json(result, file.string());
    if (is_current(result)) runs_.emplace(run.key.hash(), std::move(run));
  }
}

const StoredRun* Pool::find(const RunKey& key) const {
  const auto found = runs_.find(key.hash());
  return found == runs_.end() ? nullptr : &found->second;
}

void Pool::add(StoredRun run) {
  fs::create_directories(folder_ / "results");
  io::write_file_atomically(folder_ / "results" / run.file_name(), to_text(run));
  runs_.insert_or_assign(run.key.hash(), std::move(run));
}

Pool::Merged Pool::merge(const fs::path& from) {
  if (!fs::exists(from))
    throw Error(fmt::format("--merge {}: no such file or folder; expected results of prism reproduce", from.string()));
  const auto files = !fs::is_directory(from)              ? std::vector<fs::path>{from}
                     : fs::is_directory(from / "results") ? json_files(from / "results")
                                                          : json_files(from);
  if (files.empty()) throw Error(fmt::format("--merge {}: expected result files (*.json), got none", from.string()));
  Merged merged;
  std::vector<StoredRun> runs;
  for (const auto& file : files) {  // all are read before the first is written
    const auto result = read_result(file);
    auto run = stored_run_from_json(result, file.string());
    if (!is_current(result)) {
      ++merged.outdated;
    } else if (const auto* ours = find(run.key);
               ours != nullptr && (!ours->spectra.is_null() || run.spectra.is_null())) {
      ++merged.known;
    } else {
      runs.push_back(std::move(run));
    }
  }
  for (auto& run : runs) add(std::move(run));
  merged.added = static_cast<int64_t>(runs.size());
  return merged;
}

}  // namespace prism::reproduce
