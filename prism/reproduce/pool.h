#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "prism/reproduce/result.h"

namespace prism::reproduce {

// A folder in which results gather, from any number of calls and machines:
//   results/   one JSON file for each finished run (StoredRun)
//   runs/      folders of runs in progress, by key; removed once the result is kept
//   data/      tokenizer and shards
// Results made by another `kNumerics` are left alone and not used.
class Pool {
 public:
  explicit Pool(std::filesystem::path folder);  // reads the results; the folder need not exist

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path run_folder(const RunKey& key) const { return folder_ / "runs" / key.hash(); }
  std::filesystem::path data_folder() const { return folder_ / "data"; }

  const StoredRun* find(const RunKey& key) const;                         // nullptr where there is none
  const std::map<std::string, StoredRun>& runs() const { return runs_; }  // by key
  void add(StoredRun run);                                                // writes its file

  struct Merged {
    int64_t added = 0, known = 0, outdated = 0;
  };
  // Takes over the results of another pool's folder, of a folder of result files, or of one file. The runs that are
  // here already stay as they are.
  Merged merge(const std::filesystem::path& from);

 private:
  std::filesystem::path folder_;
  std::map<std::string, StoredRun> runs_;
};

}  // namespace prism::reproduce
