#include "prism/io/checkpoint.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <set>

#include "prism/io/atomic_file.h"
#include "prism/io/error.h"
#include "prism/io/safetensors.h"
#include "tests/io/child_process.h"
#include "tests/io/temporary_folder.h"

namespace prism::io {
namespace {

namespace fs = std::filesystem;

// Saves a checkpoint whose files all carry the same mark, so that a mixture of two checkpoints shows.
fs::path save(const fs::path& parent, int64_t step, const std::string& mark = "", size_t size = 1000) {
  CheckpointWriter writer(parent, step);
  const std::string data(size, mark.empty() ? static_cast<char>('a' + step % 26) : mark[0]);
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    const TensorView tensor{"w", "U8", {static_cast<int64_t>(size)}, std::as_bytes(std::span(data)).data(), size};
    write_safetensors(writer.path() / name, std::array{tensor}, {});
  }
  std::ofstream(writer.path() / "state.json") << data;
  return writer.commit();
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

std::string only_reason(const LatestCheckpoint& latest) {
  return latest.skipped.size() == 1 ? latest.skipped[0].reason : std::to_string(latest.skipped.size()) + " skipped";
}

void flip_bit(const fs::path& path, size_t bit) {
  const auto byte = static_cast<char>(read_file(path).at(bit / 8) ^ (1 << bit % 8));
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(static_cast<int64_t>(bit / 8)).put(byte);
}

TEST(Hash, IsXxh3Of128Bits) {
  EXPECT_EQ(hash_bytes(""), "99aa06d3014798d86001c324468d497f");
  Hasher hasher;
  for (int i = 0; i < 1000; ++i) hasher.update("0123456789");
  std::string whole;
  for (int i = 0; i < 1000; ++i) whole += "0123456789";
  EXPECT_EQ(hasher.digest(), hash_bytes(whole));
}

TEST(Checkpoint, WhatADeadProcessLeftIsRemovedButNotWhatIsBeingWritten) {
  const TemporaryFolder run;
  remove_abandoned_checkpoints(run / "missing");
  fs::create_directories(run / "step-00000034.tmp-1");  // a process died while it removed this one
  save(run.path(), 40);
  fs::create_directories(run / "step-00000036.tmp-1");
  const CheckpointWriter writer(run.path(), 42);
  fs::create_directories(run / "step-00000038.tmp-1");
  remove_abandoned_checkpoints(run.path());
  EXPECT_EQ(names_in(run.path()), (std::vector<std::string>{"step-00000040", writer.path().filename()}));
}

TEST(Checkpoint, AppearsUnderItsNameOnlyAtCommit) {
  const TemporaryFolder run;
  {
    CheckpointWriter writer(run / "checkpoints", 1000);
    EXPECT_EQ(writer.path().filename(), "step-00001000.tmp-" + std::to_string(::getpid()));
    write_file_atomically(writer.path() / "state.json", "{}");
    EXPECT_EQ(latest_checkpoint(run / "checkpoints").path, std::nullopt);
    EXPECT_EQ(only_reason(latest_checkpoint(run / "checkpoints")), "still being written");
    EXPECT_EQ(writer.commit(), run / "checkpoints/step-00001000");
  }
  EXPECT_EQ(names_in(run / "checkpoints"), std::vector<std::string>{"step-00001000"});
  const auto latest = latest_checkpoint(run / "checkpoints");
  EXPECT_EQ(latest.path, run / "checkpoints/step-00001000");
  EXPECT_EQ(latest.step, 1000);
  EXPECT_TRUE(latest.skipped.empty());
}

TEST(Checkpoint, WithoutCommitLeavesNothing) {
  const TemporaryFolder run;
  {
    CheckpointWriter writer(run.path(), 1);
    write_file_atomically(writer.path() / "state.json", "{}");
  }
  EXPECT_EQ(run.entries(), 0u);
}

TEST(Checkpoint, ManifestNamesSizeAndHashOfEachFile) {
  const TemporaryFolder run;
  const auto manifest = verify_manifest(save(run.path(), 7));
  EXPECT_EQ(manifest.step, 7);
  EXPECT_EQ(manifest.files.size(), 3u);
  const std::string data(1000, 'h');
  EXPECT_EQ(manifest.files.at("state.json"), (FileHash{1000, hash_bytes(data)}));
}

TEST(Checkpoint, NewestIsTheHighestStepEvenPastEightDigits) {
  const TemporaryFolder run;
  for (const int64_t step : {99999999L, 100000000L, 5L}) save(run.path(), step);
  EXPECT_EQ(latest_checkpoint(run.path()).step, 100000000);
  EXPECT_EQ(latest_checkpoint(run / "missing").path, std::nullopt);
}

TEST(Checkpoint, OfTheSameStepIsReplaced) {
  const TemporaryFolder run;
  save(run.path(), 3, "x");
  const auto folder = save(run.path(), 3, "y");
  EXPECT_EQ(read_file(folder / "state.json"), std::string(1000, 'y'));
  EXPECT_EQ(names_in(run.path()), std::vector<std::string>{"step-00000003"});
}

struct Damage {
  const char* name;
  std::function<void(const fs::path& folder)> inflict;
  const char* reason;
};

void edit_manifest(const fs::path& folder, const std::string& from, const std::string& to) {
  std::string text = read_file(folder / "manifest.json");
  text.replace(text.find(from), from.size(), to);
  std::ofstream(folder / "manifest.json") << text;
}

std::vector<Damage> damages() {
  return {
      {"TruncatedFile", [](const fs::path& f) { fs::resize_file(f / "model.safetensors", 100); },
       "model.safetensors: expected 1144 bytes, got 100; the file is truncated"},
      {"GrownFile", [](const fs::path& f) { fs::resize_file(f / "state.json", 1001); },
       "state.json: expected 1000 bytes, got 1001"},
      {"FlippedBit", [](const fs::path& f) { flip_bit(f / "optimizer.safetensors", 4003); },
       "optimizer.safetensors: expected hash "},
      {"MissingFile", [](const fs::path& f) { fs::remove(f / "model.safetensors"); },
       "model.safetensors: the file is missing"},
      {"FolderForFile",
       [](const fs::path& f) {
         fs::remove(f / "state.json");
         fs::create_directory(f / "state.json");
       },
       "state.json: expected a regular file"},
      {"MissingManifest", [](const fs::path& f) { fs::remove(f / "manifest.json"); },
       "manifest.json: cannot open: No such file"},
      {"EmptyManifest", [](const fs::path& f) { fs::resize_file(f / "manifest.json", 0); },
       "manifest.json: invalid JSON"},
      {"TruncatedManifest", [](const fs::path& f) { fs::resize_file(f / "manifest.json", 50); },
       "manifest.json: invalid JSON"},
      {"LaterVersion", [](const fs::path& f) { edit_manifest(f, "\"version\": 1", "\"version\": 2"); },
       "manifest.json: expected version 1, got \"2\""},
      {"OtherStep", [](const fs::path& f) { edit_manifest(f, "\"step\": 2", "\"step\": 9"); },
       "expected step 2 as the folder's name says, got 9"},
      {"UnknownKey", [](const fs::path& f) { edit_manifest(f, "\"version\"", "\"extra\": 0, \"version\""); },
       "expected no such key, got \"\\\"extra\\\"\""},
      {"WrongType", [](const fs::path& f) { edit_manifest(f, "\"bytes\": 1000", "\"bytes\": \"1000\""); },
       "expected \"bytes\" of type number"},
      {"NameOutsideTheFolder", [](const fs::path& f) { edit_manifest(f, "\"state.json\"", "\"../state.json\""); },
       "expected a file name without folders"},
      {"NoFiles",
       [](const fs::path& f) { std::ofstream(f / "manifest.json") << R"({"version":1,"step":2,"files":{}})"; },
       "expected at least one file"},
      {"NotAnObject", [](const fs::path& f) { std::ofstream(f / "manifest.json") << "[]"; },
       "expected an object with \"version\""},
  };
}

class DamagedCheckpoint : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedCheckpoint, IsSkippedAndNamed) {
  const TemporaryFolder run;
  save(run.path(), 1);
  const auto broken = save(run.path(), 2);
  GetParam().inflict(broken);
  const auto latest = latest_checkpoint(run.path());
  EXPECT_EQ(latest.path, run / "step-00000001");
  EXPECT_EQ(latest.step, 1);
  EXPECT_TRUE(contains(only_reason(latest), GetParam().reason));
  EXPECT_EQ(latest.skipped.at(0).path, broken);
}

INSTANTIATE_TEST_SUITE_P(EveryKind, DamagedCheckpoint, ::testing::ValuesIn(damages()),
                         [](const auto& damage) { return damage.param.name; });

TEST(Checkpoint, ManifestWithAnyBitFlippedIsRefused) {
  const TemporaryFolder run;
  const auto folder = save(run.path(), 2, "", 10);
  const size_t bits = 8 * read_file(folder / "manifest.json").size();
  for (size_t bit = 0; bit < bits; ++bit) {
    flip_bit(folder / "manifest.json", bit);
    EXPECT_EQ(latest_checkpoint(run.path()).path, std::nullopt) << bit;
    flip_bit(folder / "manifest.json", bit);
  }
  EXPECT_EQ(latest_checkpoint(run.path()).path, folder);
}

TEST(Checkpoint, FilesTheManifestDoesNotNameAreIgnored) {
  const TemporaryFolder run;
  const auto folder = save(run.path(), 2);
  std::ofstream(folder / "notes.txt") << "good one";
  std::ofstream(run / "step-00000003") << "a file";
  fs::create_directories(run / "step-4");
  fs::create_directories(run / "best");
  const auto latest = latest_checkpoint(run.path());
  EXPECT_EQ(latest.path, folder);
  EXPECT_TRUE(latest.skipped.empty());
}

TEST(Checkpoint, RefusesWhatIsNoPlainDataFile) {
  const TemporaryFolder run;
  const auto refused = [&](auto&& prepare) {
    return message_of<Error>([&] {
      CheckpointWriter writer(run.path(), 1);
      prepare(writer.path());
      writer.commit();
    });
  };
  EXPECT_TRUE(contains(refused([](const fs::path&) {}), "expected at least one file in a checkpoint"));
  EXPECT_TRUE(
      contains(refused([](const fs::path& f) { fs::create_directory(f / "sub"); }), "sub: expected a plain data file"));
  EXPECT_TRUE(contains(refused([](const fs::path& f) { fs::create_symlink("/etc/hostname", f / "link"); }),
                       "link: expected a plain data file"));
  EXPECT_TRUE(contains(message_of<Error>([&] { CheckpointWriter(run.path(), -1); }), "expected a step ≥ 0, got -1"));
  EXPECT_EQ(run.entries(), 0u);
}

TEST(Checkpoint, PruningKeepsTheNewest) {
  const TemporaryFolder run;
  for (int64_t step = 1; step <= 5; ++step) save(run.path(), step);
  const auto removed = prune_checkpoints(run.path(), 2);
  EXPECT_EQ(removed.size(), 3u);
  EXPECT_EQ(names_in(run.path()), (std::vector<std::string>{"step-00000004", "step-00000005"}));
  EXPECT_TRUE(prune_checkpoints(run.path(), 2).empty());
  EXPECT_TRUE(contains(message_of<Error>([&] { prune_checkpoints(run.path(), 0); }),
                       "expected to keep at least 1 checkpoint, got 0"));
}

TEST(Checkpoint, PruningSparesTheOnlyOneThatVerifies) {
  const TemporaryFolder run;
  for (int64_t step = 1; step <= 5; ++step) save(run.path(), step);
  for (int64_t step = 3; step <= 5; ++step) flip_bit(run / checkpoint_name(step) / "state.json", 9);
  prune_checkpoints(run.path(), 2);
  EXPECT_EQ(names_in(run.path()), (std::vector<std::string>{"step-00000002", "step-00000004", "step-00000005"}));
  EXPECT_EQ(latest_checkpoint(run.path()).step, 2);
  flip_bit(run / "step-00000002/state.json", 9);
  EXPECT_TRUE(prune_checkpoints(run.path(), 1).empty());
}

TEST(Checkpoint, LeftoversOfADeadProcessAreNamedAndCleanedByTheNextWriter) {
  const TemporaryFolder run;
  save(run.path(), 1);
  const int status = in_child([&] {
    CheckpointWriter writer(run.path(), 2);
    write_file_atomically(writer.path() / "state.json", "{}");
    ::kill(::getpid(), SIGKILL);
  });
  EXPECT_EQ(status, 128 + SIGKILL);
  EXPECT_EQ(run.entries(), 2u);
  EXPECT_EQ(only_reason(latest_checkpoint(run.path())), "unfinished: its writer died");
  EXPECT_EQ(latest_checkpoint(run.path()).step, 1);
  const CheckpointWriter living(run.path(), 3);
  save(run.path(), 4);
  EXPECT_EQ(names_in(run.path()),
            (std::vector<std::string>{"step-00000001", living.path().filename(), "step-00000004"}));
}

TEST(Checkpoint, OfADeadProcessWithOurNumberAndStepIsNoObstacle) {
  const TemporaryFolder run;
  fs::create_directories(run / ("step-00000001.tmp-" + std::to_string(::getpid())) / "old");
  save(run.path(), 1);
  EXPECT_EQ(names_in(run.path()), std::vector<std::string>{"step-00000001"});
}

TEST(Checkpoint, TwoWritersOfOneStepDoNotMix) {
  const TemporaryFolder run;
  const CheckpointWriter first(run.path(), 1);
  EXPECT_TRUE(contains(message_of<std::runtime_error>([&] { CheckpointWriter(run.path(), 1); }),
                       "cannot make the folder: File exists"));
}

TEST(Checkpoint, CannotBeWrittenInAFile) {
  const TemporaryFolder run;
  std::ofstream(run / "file") << "text";
  EXPECT_TRUE(contains(message_of<Error>([&] { CheckpointWriter(run / "file", 1); }),
                       "file: cannot make the folder: Not a directory"));
}

// Returns step and mark of the newest checkpoint, whose three files must come from one save.
std::pair<int64_t, char> newest(const fs::path& parent) {
  const auto latest = latest_checkpoint(parent);
  if (!latest.path) return {0, ' '};
  const SafetensorsFile model(*latest.path / "model.safetensors"), optimizer(*latest.path / "optimizer.safetensors");
  const auto mark = static_cast<char>(*model.find("w")->data);
  EXPECT_EQ(static_cast<char>(*optimizer.find("w")->data), mark);
  EXPECT_EQ(read_file(*latest.path / "state.json")[0], mark);
  for (const auto& skipped : latest.skipped) EXPECT_EQ(skipped.reason, "unfinished: its writer died");
  return {latest.step, mark};
}

#ifdef __SANITIZE_ADDRESS__
constexpr int64_t kCallsApart = 20;  // the sanitizer makes calls of its own and is slow to fork
#else
constexpr int64_t kCallsApart = 1;
#endif

// Files change only in system calls, so a kill at each call stands for a kill at any moment.
TEST(Checkpoint, SurvivesAKillAtEverySystemCall) {
  const TemporaryFolder run;
  std::set<std::pair<int64_t, char>> seen;
  int status = kKilled;
  for (int64_t calls = 0; status == kKilled; calls += kCallsApart) {
    fs::remove_all(run / "checkpoints");
    save(run / "checkpoints", 1, "a");
    save(run / "checkpoints", 2, "b");
    status = in_child_killed_after(calls, [&] {
      save(run / "checkpoints", 2, "c");  // replaces
      save(run / "checkpoints", 3, "d");
      prune_checkpoints(run / "checkpoints", 1);
    });
    if (status == kNoTracing) GTEST_SKIP() << "processes may not be traced here";
    seen.insert(newest(run / "checkpoints"));
    save(run / "checkpoints", 4, "e");
    EXPECT_EQ(newest(run / "checkpoints"), std::pair(int64_t{4}, 'e'));
    for (const auto& name : names_in(run / "checkpoints")) EXPECT_FALSE(contains(name, ".tmp-")) << calls;
  }
  EXPECT_EQ(status, 0);
  EXPECT_EQ(seen, (std::set<std::pair<int64_t, char>>{{2, 'b'}, {2, 'c'}, {3, 'd'}}));
}

TEST(Checkpoint, FullDiskLosesNoEarlierOneAndLeavesNoRubbish) {
  const TemporaryFolder run;
  for (const size_t limit : {0, 10, 500, 1500}) {  // in the first file … in the manifest
    save(run.path(), 1, "x");
    const int status = in_child([&] {
      limit_file_size(limit);
      save(run.path(), 2, "", 1300);
    });
    EXPECT_EQ(status, limit < 1500 ? 1 : 0) << limit;
    EXPECT_EQ(latest_checkpoint(run.path()).step, limit < 1500 ? 1 : 2);
    EXPECT_TRUE(latest_checkpoint(run.path()).skipped.empty());
  }
}

}  // namespace
}  // namespace prism::io
