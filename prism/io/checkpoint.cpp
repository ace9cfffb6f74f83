#include "prism/io/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>

#include "prism/io/atomic_file.h"
#include "prism/io/error.h"

namespace prism::io {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kUnfinished = ".tmp-";

struct Candidate {
  fs::path path;
  int64_t step;
  bool temporary;
};

// Recognizes "step-00001000" and "step-00001000.tmp-77"; ignores anything else in the parent.
std::optional<Candidate> as_candidate(const fs::directory_entry& entry) {
  const auto name = entry.path().filename().string();
  const auto stem = name.substr(0, name.find(kUnfinished));
  if (!entry.is_directory() || !stem.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  const char *begin = stem.data() + kPrefix.size(), *end = stem.data() + stem.size();
  const auto parsed = std::from_chars(begin, end, step);
  if (parsed.ec != std::errc() || parsed.ptr != end || checkpoint_name(step) != stem) return std::nullopt;
  return Candidate{entry.path(), step, stem != name};
}

std::vector<Candidate> newest_first(const fs::path& parent) {
  std::vector<Candidate> candidates;
  if (!fs::exists(parent)) return candidates;
  for (const auto& entry : fs::directory_iterator(parent)) {
    if (auto candidate = as_candidate(entry)) candidates.push_back(std::move(*candidate));
  }
  std::ranges::sort(candidates, [](const Candidate& a, const Candidate& b) {
    return a.step != b.step ? a.step > b.step : a.path > b.path;
  });
  return candidates;
}

// The reason that a checkpoint cannot be used; empty if it verifies.
std::string fault_of(const Candidate& candidate) {
  try {
    const auto manifest = verify_manifest(candidate.path);
    if (manifest.step == candidate.step) return "";
    return fmt::format("{}: expected step {} as the folder's name says, got {}",
                       (candidate.path / kManifestName).string(), candidate.step, manifest.step);
  } catch (const std::exception& error) {
    return error.what();
  }
}

// Renames the folder first, so that a half-removed one does not look like a checkpoint.
void remove_checkpoint(const fs::path& path) {
  auto doomed = path;
  doomed += fmt::format("{}{}", kUnfinished, ::getpid());
  fs::remove_all(doomed);
  move_path(path, doomed);
  fs::remove_all(doomed);
}

}  // namespace

std::string checkpoint_name(int64_t step) { return fmt::format("{}{:08d}", kPrefix, step); }

CheckpointWriter::CheckpointWriter(const fs::path& parent, int64_t step)
    : parent_(parent), target_(parent / checkpoint_name(step)), step_(step) {
  if (step < 0) throw Error(fmt::format("{}: expected a step ≥ 0, got {}", parent.string(), step));
  make_folders(parent);
  remove_abandoned_checkpoints(parent);
  temporary_ = target_;
  temporary_ += fmt::format("{}{}", kUnfinished, ::getpid());
  if (::mkdir(temporary_.c_str(), 0777) != 0) throw_system_error("make the folder", temporary_, errno);
  owns_temporary_ = true;
  lock_ = FileDescriptor(temporary_, O_RDONLY | O_DIRECTORY);
  ::flock(lock_.get(), LOCK_EX);
}

CheckpointWriter::~CheckpointWriter() {
  std::error_code ignored;
  if (owns_temporary_) fs::remove_all(temporary_, ignored);
}

fs::path CheckpointWriter::commit() {
  write_manifest(temporary_, step_);
  publish();
  sync_folder(parent_);
  if (owns_temporary_) fs::remove_all(temporary_);
  owns_temporary_ = false;
  return target_;
}

// Sets `owns_temporary_` to true if the temporary name now holds the checkpoint that was replaced.
void CheckpointWriter::publish() {
  const auto rename = [&](unsigned flags) {
    return ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), flags) == 0;
  };
  if (fs::exists(target_)) {
    if (rename(RENAME_EXCHANGE)) return;
    if (errno != EINVAL && errno != ENOSYS) throw_system_error("replace", target_, errno);
    if (fault_of({target_, step_, false}).empty()) {
      throw Error(
          fmt::format("{}: this checkpoint exists, and the file system cannot replace a folder at once; "
                      "move it away first",
                      target_.string()));
    }
    fs::remove_all(target_);
  }
  move_path(temporary_, target_);
  owns_temporary_ = false;
}

void remove_abandoned_checkpoints(const fs::path& parent) {
  std::error_code ignored;
  for (const auto& candidate : newest_first(parent)) {
    if (candidate.temporary && is_abandoned(candidate.path)) fs::remove_all(candidate.path, ignored);
  }
}

LatestCheckpoint latest_checkpoint(const fs::path& parent) {
  LatestCheckpoint latest;
  for (const auto& candidate : newest_first(parent)) {
    if (candidate.temporary) {
      const bool abandoned = is_abandoned(candidate.path);
      latest.skipped.push_back({candidate.path, abandoned ? "unfinished: its writer died" : "still being written",
                                /*unfinished=*/true});
    } else if (!latest.path) {
      auto fault = fault_of(candidate);
      if (fault.empty()) {
        latest.path = candidate.path;
        latest.step = candidate.step;
      } else {
        latest.skipped.push_back({candidate.path, std::move(fault)});
      }
    }
  }
  return latest;
}

std::vector<fs::path> prune_checkpoints(const fs::path& parent, int64_t keep) {
  if (keep < 1) throw Error(fmt::format("{}: expected to keep at least 1 checkpoint, got {}", parent.string(), keep));
  auto candidates = newest_first(parent);
  std::erase_if(candidates, [](const Candidate& candidate) { return candidate.temporary; });
  std::vector<fs::path> removed;
  if (candidates.size() <= static_cast<size_t>(keep)) return removed;
  const auto good = std::ranges::find_if(candidates, [](const auto& candidate) { return fault_of(candidate).empty(); });
  if (good == candidates.end()) return removed;  // all are damaged: keep whatever can be salvaged
  for (auto last = candidates.end(); last != candidates.begin() + keep;) {
    if (--last == good) continue;
    remove_checkpoint(last->path);
    removed.push_back(last->path);
  }
  return removed;
}

}  // namespace prism::io
