#include "prism/reproduce/pool.h"

#include <fmt/format.h>

#include <algorithm>

#include "prism/io/atomic_file.h"
#include "prism/io/error.h"
#include "prism/io/file.h"

namespace prism::reproduce {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> json_files(const fs::path& folder) {
  std::vector<fs::path> files;
  if (!fs::exists(folder)) return files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

Pool::Pool(fs::path folder) : folder_(std::move(folder)) {
  for (const auto& file : json_files(folder_ / "results")) {
    auto run = read_stored_run(file);
    if (run.is_current()) runs_.emplace(run.key.hash(), std::move(run));
  }
}

const StoredRun* Pool::find(const RunKey& key) const {
  const auto found = runs_.find(key.hash());
  return found == runs_.end() ? nullptr : &found->second;
}

void Pool::add(StoredRun run) {
  io::make_folders(folder_ / "results");
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
  for (const auto& file : files) {  // read all files before writing, so that a bad one changes nothing
    auto run = read_stored_run(file);
    if (!run.is_current()) {
      ++merged.outdated;
    } else if (const auto* ours = find(run.key); ours != nullptr && (!ours->spectra.empty() || run.spectra.empty())) {
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
