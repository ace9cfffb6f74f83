#include "prism/bench/results.h"

#include <gtest/gtest.h>
#include <torch/version.h>

#include <regex>

#include "prism/bench/peers.h"
#include "prism/bench/timing.h"
#include "prism/io/atomic_file.h"
#include "prism/io/error.h"
#include "prism/io/file.h"
#include "tests/io/temporary_folder.h"

namespace prism::bench {
namespace {

using nlohmann::json;

json read(const std::filesystem::path& file) { return json::parse(io::read_file(file)); }

TEST(ResultsFile, KeepsFiguresThatAreNotMeasuredAnew) {
  const io::TemporaryFolder folder;
  const auto file = folder.path() / "results.json";
  io::write_file_atomically(file, R"({"note": "kept", "step_ms": {"22m": {"muon": 1, "prism": 2}},
                                      "details": {"22m": {"prism": {"eager_ms": 2, "captured_ms": 2}}}})");
  ResultsFile results(file, at::kCPU);
  results.merge(step_figures("22m", {{.name = "prism", .eager_ms = 3.00004}}, std::nullopt));
  results.merge({{"tokens_per_s", {{"22m", 1.5e6}}}});
  const auto document = read(file);
  EXPECT_EQ(document.at("note"), "kept");
  EXPECT_EQ(document.at("step_ms"), json::parse(R"({"22m": {"muon": 1, "prism": 3}})"));
  EXPECT_EQ(document.at("details").at("22m").at("prism"), json::parse(R"({"eager_ms": 3, "memory_mib": 0})"));
  EXPECT_EQ(document.at("tokens_per_s").at("22m"), 1.5e6);
  EXPECT_EQ(document.at("torch"), TORCH_VERSION);
  EXPECT_EQ(document.at("device"), device_name(at::kCPU));
  EXPECT_TRUE(std::regex_match(document.at("date").get<std::string>(), std::regex(R"(\d{4}-\d\d-\d\d)")));
}

TEST(ResultsFile, TakesTheBetterOfEagerAndCaptured) {
  const auto figures = step_figures("22m", {{.name = "prism", .eager_ms = 3, .captured_ms = 2}}, std::nullopt);
  EXPECT_EQ(figures.at("step_ms").at("22m").at("prism"), 2);
}

TEST(ResultsFile, RefusesFiguresOfAnotherDeviceAndWhatIsNoFileOfFigures) {
  const io::TemporaryFolder folder;
  const auto file = folder.path() / "results.json";
  io::write_file_atomically(file, R"({"device": "NVIDIA H200"})");
  const auto refusal = [](const auto& path) { return io::message_of<Error>([&] { ResultsFile(path, at::kCPU); }); };
  EXPECT_TRUE(io::contains(refusal(file), "NVIDIA H200"));
  io::write_file_atomically(file, "[1, 2]");
  EXPECT_TRUE(io::contains(refusal(file), "got array"));
  EXPECT_TRUE(io::contains(refusal(folder / "missing/results.json"), "there is no folder"));
}

TEST(Page, HoldsEveryBar) {
  const io::TemporaryFolder folder;
  const auto file = folder.path() / "page.html";
  write_page(file, "a <device>",
             {{"22m",
               "56 matrices",
               {{.name = "prism", .eager_ms = 2}, {.name = "torch</script>", .ours = false, .eager_ms = 4}}}});
  const auto html = io::read_file(file);
  EXPECT_NE(html.find("a &lt;device&gt;"), std::string::npos);
  EXPECT_NE(html.find(R"("marked":true,"name":"prism","value":2.0)"), std::string::npos);
  EXPECT_NE(html.find(R"(torch\u003c/script>)"), std::string::npos);
  EXPECT_EQ(html.find("{{"), std::string::npos);
}

// A peer in two lines of shell.
constexpr const char* kPeer = R"(echo '{"names": ["theirs", "absent"]}'; while read job; do
echo '{"name": "theirs", "like": "adamw", "eager_ms": 2.5, "memory_mib": 1}';
echo '{"name": "absent", "missing": "not installed"}'; echo '{}'; done)";

TEST(Peers, AreMeasuredByTheProgramThatKnowsThem) {
  Peers peers(kPeer);
  EXPECT_EQ(peers.names(), (std::vector<std::string>{"theirs", "absent"}));
  const ShapeSet set{"small", {{4, 4}}, {}};
  std::string missing;
  for (int round = 0; round < 2; ++round) {
    const auto rows = peers.measure(set, at::kCPU, 3, {}, [&](const auto& name, const auto& why) {
      missing.assign(name).append(": ").append(why);
    });
    ASSERT_EQ(rows.size(), 1U);
    EXPECT_EQ(rows[0].name, "theirs");
    EXPECT_FALSE(rows[0].ours);
    EXPECT_EQ(rows[0].best_ms(), 2.5);
    EXPECT_EQ(rows[0].work->bytes, 28 * 16);
    EXPECT_EQ(missing, "absent: not installed");
  }
}

TEST(Peers, ThatDoNotAnswerAreNamed) {
  const auto message = [](const char* command) { return io::message_of<Error>([&] { const Peers peers(command); }); };
  EXPECT_EQ(message("exit 3"), "--peers: 'exit 3' ended before it answered");
  EXPECT_NE(message("echo hello").find("--peers: invalid JSON"), std::string::npos);
  EXPECT_NE(message("echo '{}'").find("expected the names of optimizers"), std::string::npos);
  Peers gone(R"(echo '{"names": []}')");
  EXPECT_THROW(gone.measure({"small", {{4, 4}}, {}}, at::kCPU, 1, {}, [](const auto&, const auto&) {}), Error);
}

}  // namespace
}  // namespace prism::bench
