#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "prism/reproduce/result.h"

namespace prism::reproduce {

// A folder that collects results from any number of calls and machines:
//   results/   one JSON file per finished run (StoredRun)
//   runs/      folders of unfinished runs, named by key; removed once the result is stored
//   data/      tokenizer and shards
// Results with another `kNumerics` stay in the folder but are not used.
class Pool {
 public:
  explicit Pool(std::filesystem::path folder);  // reads the results; the folder may be missing

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path run_folder(const RunKey& key) const { return folder_ / "runs" / key.hash(); }
  std::filesystem::path data_folder() const { return folder_ / "data"; }

  const StoredRun* find(const RunKey& key) const;                         // nullptr if there is none
  const std::map<std::string, StoredRun>& runs() const { return runs_; }  // by hash of the key
  void add(StoredRun run);                                                // writes its file

  struct Merged {
    int64_t added = 0, known = 0, outdated = 0;
  };
  // Adds the results of another pool, of a folder of result files or of one file. A run that is already here is kept,
  // unless only the other one has spectra.
  Merged merge(const std::filesystem::path& from);

 private:
  std::filesystem::path folder_;
  std::map<std::string, StoredRun> runs_;
};

}  // namespace prism::reproduce
