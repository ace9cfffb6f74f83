#include "prism/io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "prism/io/error.h"
#include "tests/io/child_process.h"
#include "tests/io/temporary_folder.h"

namespace prism::io {
namespace {

TEST(AtomicFile, ReplacesTheTargetOnlyAtCommit) {
  const TemporaryFolder folder;
  const auto target = folder / "a.txt";
  write_file_atomically(target, "old");
  {
    AtomicFile file(target);
    file.write("new");
    EXPECT_EQ(read_file(target), "old");
    file.commit();
  }
  EXPECT_EQ(read_file(target), "new");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(AtomicFile, LeavesNothingBehindWithoutCommit) {
  const TemporaryFolder folder;
  { AtomicFile(folder / "a.txt").write("half"); }
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(AtomicFile, KeepsTheOldTargetAndNoTemporaryWhenTheDiskIsFull) {
  const TemporaryFolder folder;
  const auto target = folder / "a.txt";
  write_file_atomically(target, "old");
  const int status = in_child([&] {
    limit_file_size(1000);
    write_file_atomically(target, std::string(5000, 'x'));
  });
  EXPECT_EQ(status, 1);
  EXPECT_EQ(read_file(target), "old");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(AtomicFile, SaysThatTheDiskIsFull) {
  const auto message = message_of<std::runtime_error>([] { FileDescriptor("/dev/full", O_WRONLY).write_all("x"); });
  EXPECT_EQ(message, "/dev/full: cannot write: the disk is full");
}

TEST(AtomicFile, TellsAWrongPathFromAFailure) {
  const TemporaryFolder folder;
  EXPECT_TRUE(contains(message_of<Error>([&] { write_file_atomically(folder / "none/a.txt", "x"); }),
                       "none/a.txt: cannot create: there is no folder "));
  EXPECT_TRUE(contains(message_of<Error>([&] { write_file_atomically(folder.path(), "x"); }), "Is a directory"));
  EXPECT_TRUE(contains(message_of<Error>([&] { write_file_atomically(folder / "", "x"); }), "expected a file name"));
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(AtomicFile, SkipsTheTemporaryOfADeadProcessWithTheSameNumber) {
  const TemporaryFolder folder;
  const auto target = folder / "a.txt";
  for (int n = 0; n < 100; ++n)
    write_file_atomically(target.string() + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(n), "");
  write_file_atomically(target, "new");
  EXPECT_EQ(read_file(target), "new");
}

TEST(AtomicFile, RemovesWhatAKilledWriterOfTheSameTargetLeft) {
  const TemporaryFolder folder;
  const auto target = folder / "a.txt";
  const int status = in_child([&] {
    AtomicFile file(target);
    file.write("half");
    ::raise(SIGKILL);
  });
  EXPECT_EQ(status, kKilled);
  EXPECT_EQ(folder.entries(), 1u);
  write_file_atomically(folder / "b.txt", "another target");
  EXPECT_EQ(folder.entries(), 2u);
  write_file_atomically(target, "new");
  EXPECT_EQ(folder.entries(), 2u);
}

TEST(AtomicFile, LeavesTheTemporaryOfALivingWriter) {
  const TemporaryFolder folder;
  const auto target = folder / "a.txt";
  AtomicFile first(target);
  first.write("first");
  EXPECT_EQ(in_child([&] { write_file_atomically(target, "second"); }), 0);
  EXPECT_EQ(read_file(target), "second");
  first.commit();
  EXPECT_EQ(read_file(target), "first");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(ReadFile, RefusesFoldersPipesAndMissingFiles) {
  const TemporaryFolder folder;
  EXPECT_TRUE(contains(message_of<Error>([&] { read_file(folder.path()); }), "expected a regular file, got a folder"));
  EXPECT_TRUE(contains(message_of<Error>([&] { read_file(folder / "none"); }), "cannot open: No such file"));
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(contains(message_of<Error>([&] { MappedFile(folder / "pipe"); }), "got a pipe, socket or device"));
}

TEST(MappedFile, GivesTheBytesAndKeepsThemWhenMoved) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "hello");
  write_file_atomically(folder / "empty", "");
  MappedFile file(folder / "a");
  const auto* address = file.bytes().data();
  MappedFile moved = std::move(file);
  EXPECT_EQ(moved.bytes().data(), address);
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(address), moved.bytes().size()), "hello");
  EXPECT_TRUE(MappedFile(folder / "empty").bytes().empty());
}

}  // namespace
}  // namespace prism::io
