#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "prism/io/file.h"
#include "prism/io/manifest.h"

namespace prism::io {

// The checkpoints of a run are folders `step-00001000` in one parent. Each is written as `step-00001000.tmp-<pid>` and
// appears under its own name only when complete: files flushed and hashed, manifest written last and flushed, folder
// renamed, parent flushed. If the process is killed or the disk is full, earlier checkpoints stay as they were.
//
//   CheckpointWriter writer(run / "checkpoints", step);
//   write_safetensors(writer.path() / "model.safetensors", tensors, {});
//   writer.commit();
//   prune_checkpoints(run / "checkpoints", keep);
class CheckpointWriter {
 public:
  // Creates the parent if needed and removes temporary folders that dead processes left in it. A temporary folder is
  // locked (flock) while its writer lives, so it is safe if the system reuses a process number.
  CheckpointWriter(const std::filesystem::path& parent, int64_t step);
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  ~CheckpointWriter();  // without commit, removes the temporary folder

  const std::filesystem::path& path() const { return temporary_; }  // put the files here

  // Publishes the checkpoint and returns its folder. An existing checkpoint of the same step is replaced by exchanging
  // the two names. If the file system cannot exchange names, it is replaced only if it does not verify; otherwise
  // throws.
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
  bool unfinished = false;  // not complete: its writer died or is still writing
};

struct LatestCheckpoint {
  std::optional<std::filesystem::path> path;  // none if no checkpoint verifies
  int64_t step = 0;
  std::vector<SkippedCheckpoint> skipped;  // broken ones that are newer, and unfinished ones; newest first
};

// Returns the newest checkpoint that verifies. The parent may be missing.
LatestCheckpoint latest_checkpoint(const std::filesystem::path& parent);

// Removes what processes that died left while they wrote or removed a checkpoint. The parent may be missing.
void remove_abandoned_checkpoints(const std::filesystem::path& parent);

// Removes all but the `keep` newest checkpoints, but never the newest one that verifies. Removes nothing if none
// verifies. Returns the removed paths.
std::vector<std::filesystem::path> prune_checkpoints(const std::filesystem::path& parent, int64_t keep);

std::string checkpoint_name(int64_t step);  // "step-00001000"

}  // namespace prism::io
