#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "prism/io/file.h"
#include "prism/io/manifest.h"

namespace prism::io {

// Checkpoints of a run are folders `step-00001000` in one parent. Each is written as `step-00001000.tmp-<pid>` and
// appears under its own name only when complete: files flushed and hashed, manifest written last and flushed, folder
// renamed, parent flushed. A process killed at any moment, or a full disk, leaves the earlier ones as they were.
//
//   CheckpointWriter writer(run / "checkpoints", step);
//   write_safetensors(writer.path() / "model.safetensors", tensors, {});
//   writer.commit();
//   prune_checkpoints(run / "checkpoints", keep);
class CheckpointWriter {
 public:
  // Creates the parent where needed and removes temporary folders that dead processes left in it. A temporary folder is
  // locked (flock) while its writer lives, so process numbers that are used again mislead nobody.
  CheckpointWriter(const std::filesystem::path& parent, int64_t step);
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  ~CheckpointWriter();  // without commit, removes the temporary folder

  const std::filesystem::path& path() const { return temporary_; }  // put the files here

  // Returns the final folder. One of the same step that is already there is replaced, in one exchange of the two names.
  // On a file system that cannot exchange names it is replaced only if it does not verify, else refused.
  std::filesystem::path commit();

 private:
  void publish();

  std::filesystem::path parent_, temporary_, target_;
  int64_t step_;
  FileDescriptor lock_;
  bool owns_temporary_ = false;
};

struct SkippedCheckpoint {
  std::filesystem::path path;
  std::string reason;
  bool unfinished = false;  // never was a checkpoint: its writer died, or is still at it
};

struct LatestCheckpoint {
  std::optional<std::filesystem::path> path;  // none where no checkpoint verifies
  int64_t step = 0;
  std::vector<SkippedCheckpoint> skipped;  // broken ones that are newer, and unfinished ones; newest first
};

// The newest checkpoint that verifies. A missing parent holds none.
LatestCheckpoint latest_checkpoint(const std::filesystem::path& parent);

// Removes all but the `keep` newest, and never the newest one that verifies; nothing where none does. Returns what it
// removed.
std::vector<std::filesystem::path> prune_checkpoints(const std::filesystem::path& parent, int64_t keep);

std::string checkpoint_name(int64_t step);  // "step-00001000"

}  // namespace prism::io
