#include "prism/io/json_lines.h"

#include <algorithm>
#include <limits>

#include "prism/io/atomic_file.h"
#include "prism/io/error.h"
#include "tests/io/child_process.h"
#include "tests/io/temporary_folder.h"

namespace prism::io {
namespace {

using nlohmann::json;

json line(int64_t step, double loss = 0.5) { return {{"step", step}, {"loss", loss}}; }

TEST(JsonLines, ReadsBackWhatWasAppended) {
  const TemporaryFolder folder;
  auto writer = JsonLinesWriter::resume(folder / "m.jsonl", 0);
  writer.append(line(1, 0.1));
  writer.append({{"step", 1}, {"name", "naïve\n"}, {"loss", std::numeric_limits<double>::quiet_NaN()}});
  writer.append(line(2));
  writer.sync();
  const auto lines = read_json_lines(folder / "m.jsonl");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], line(1, 0.1));
  EXPECT_EQ(lines[1]["name"], "naïve\n");
  EXPECT_TRUE(lines[1]["loss"].is_null());
  EXPECT_EQ(writer.last_step(), 2);
}

TEST(JsonLines, IsOnDiskLineByLine) {
  const TemporaryFolder folder;
  auto writer = JsonLinesWriter::resume(folder / "m.jsonl", 0);
  writer.append(line(1));
  EXPECT_EQ(read_file(folder / "m.jsonl"), "{\"loss\":0.5,\"step\":1}\n");
}

TEST(JsonLines, RefusesObjectsWithoutStepAndStepsThatFall) {
  const TemporaryFolder folder;
  auto writer = JsonLinesWriter::resume(folder / "m.jsonl", 0);
  EXPECT_TRUE(contains(message_of<Error>([&] {
                         writer.append({{"loss", 1}});
                       }),
                       "expected an integer \"step\" within 63 bits, got none"));
  EXPECT_TRUE(contains(message_of<Error>([&] { writer.append({{"step", 1.5}}); }), "got \"1.5\""));
  EXPECT_TRUE(contains(message_of<Error>([&] {
                         writer.append({{"step", UINT64_MAX}});
                       }),
                       "got \"18446744073709551615\""));
  writer.append(line(5));
  EXPECT_TRUE(contains(message_of<Error>([&] { writer.append(line(4)); }), "m.jsonl: expected step ≥ 5, got 4"));
  EXPECT_EQ(read_json_lines(folder / "m.jsonl").size(), 1u);
}

struct Resume {
  std::string before;
  int64_t step;
  std::string after;
};

TEST(JsonLines, ResumesAfterTheLastFinishedLineOfTheStep) {
  const std::string one = "{\"step\":1}\n", two = "{\"step\":2}\n", three = "{\"step\":3}\n";
  const std::vector<Resume> cases = {
      {one + two + three, 2, one + two},
      {one + two + three, 3, one + two + three},
      {one + two + three, 9, one + two + three},
      {one + two + three, 0, ""},
      {one + two + two + three, 2, one + two + two},
      {one + "{\"st", 5, one},
      {one + three + "{\"step\":", 2, one},
      {"{\"step\":1}", 5, ""},
      {"", 5, ""},
      {one + std::string(20, '\0'), 5, one},
  };
  for (const auto& [before, step, after] : cases) {
    const TemporaryFolder folder;
    write_file_atomically(folder / "m.jsonl", before);
    auto writer = JsonLinesWriter::resume(folder / "m.jsonl", step);
    EXPECT_EQ(read_file(folder / "m.jsonl"), after) << before << step;
    EXPECT_EQ(writer.last_step().has_value(), !after.empty());
    EXPECT_EQ(writer.lines(), std::ranges::count(after, '\n'));
    writer.append(line(100));
    EXPECT_EQ(read_json_lines(folder / "m.jsonl").size(), static_cast<size_t>(writer.lines()));
    EXPECT_EQ(writer.lines(), std::ranges::count(after, '\n') + 1);
  }
}

TEST(JsonLines, ResumesWithoutAFileByCreatingIt) {
  const TemporaryFolder folder;
  JsonLinesWriter::resume(folder / "m.jsonl", 5).append(line(6));
  EXPECT_EQ(read_json_lines(folder / "m.jsonl").size(), 1u);
}

TEST(JsonLines, RefusesToResumeADamagedFileAndLeavesItAlone) {
  const TemporaryFolder folder;
  const std::string text = "{\"step\":1}\nnonsense\n{\"step\":9}\n{\"st";
  write_file_atomically(folder / "m.jsonl", text);
  EXPECT_TRUE(
      contains(message_of<Error>([&] { JsonLinesWriter::resume(folder / "m.jsonl", 5); }), "m.jsonl:2: invalid JSON"));
  EXPECT_EQ(read_file(folder / "m.jsonl"), text);
}

TEST(JsonLines, TakesBackAHalfWrittenLineWhenTheDiskIsFull) {
  const TemporaryFolder folder;
  const auto path = folder / "m.jsonl";
  const int status = in_child([&] {
    auto writer = JsonLinesWriter::resume(path, 0);
    writer.append(line(1));
    limit_file_size(100);
    bool full = false;
    try {
      writer.append({{"step", 2}, {"text", std::string(200, 'x')}});
    } catch (const std::runtime_error&) {
      full = true;
    }
    if (!full) ::_exit(3);
    writer.append(line(3));
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_json_lines(path), (std::vector<json>{line(1), line(3)}));
}

TEST(JsonLines, NamesTheLineOfAnError) {
  const auto refused = [](std::string_view text) {
    return message_of<Error>([&] { visit_json_lines(text, "m.jsonl", [](const json&, int64_t) {}); });
  };
  EXPECT_TRUE(contains(refused("{}\n{\"a\":1,\"a\":2}\n"), "m.jsonl:2: key \"a\" appears twice"));
  EXPECT_TRUE(contains(refused("{}\n\n"), "m.jsonl:2: invalid JSON"));
  EXPECT_TRUE(contains(refused("{}\n{}\n[1]\n"), "m.jsonl:3: expected a JSON object, got array"));
  EXPECT_TRUE(contains(refused("{}{}\n"), "m.jsonl:1: invalid JSON"));
}

TEST(JsonLines, TellsAnUnfinishedLastLine) {
  std::vector<int64_t> visited;
  const auto visit = [&](const json&, int64_t number) { visited.push_back(number); };
  EXPECT_FALSE(visit_json_lines("{}\r\n{}\n{\"a\"", "m", visit));
  EXPECT_EQ(visited, (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(visit_json_lines("{}\n", "m", visit));
  EXPECT_TRUE(visit_json_lines("", "m", visit));
}

}  // namespace
}  // namespace prism::io
