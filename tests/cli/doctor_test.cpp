#include "prism/cli/doctor.h"

#include <gtest/gtest.h>

#include <csignal>

namespace prism::cli {
namespace {

constexpr const char* kWithoutAmx = "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16";

TEST(Bfloat16, ThatWorksNeedsNoAdvice) {
  int probes = 0;
  const Finding finding = judge_bfloat16([&](const auto& environment) {
    ++probes;
    EXPECT_TRUE(environment.empty());
    return ChildResult{.status = 0, .signal = 0, .output = "57\n"};
  });
  EXPECT_EQ(finding.verdict, Verdict::Ok);
  EXPECT_EQ(finding.text, "matrix product works, 57 GFLOP/s");
  EXPECT_EQ(finding.fix, "");
  EXPECT_EQ(probes, 1);
}

TEST(Bfloat16, ThatTrapsIsMendedByForbiddingAmx) {
  const Finding finding = judge_bfloat16([](const std::vector<std::string>& environment) {
    const bool forbidden = environment == std::vector<std::string>{kWithoutAmx};
    return ChildResult{.status = 0, .signal = forbidden ? 0 : SIGILL, .output = "57\n"};
  });
  EXPECT_EQ(finding.verdict, Verdict::Warning) << "float32 training goes on";
  EXPECT_EQ(finding.text, "a matrix product crashes with an illegal instruction (SIGILL)");
  EXPECT_NE(finding.fix.find(kWithoutAmx), std::string::npos);
}

TEST(Bfloat16, ThatTrapsAnywayIsNotToBeUsed) {
  const Finding finding =
      judge_bfloat16([](const auto&) { return ChildResult{.status = 0, .signal = SIGSEGV, .output = ""}; });
  EXPECT_EQ(finding.verdict, Verdict::Warning);
  EXPECT_NE(finding.text.find("signal 11"), std::string::npos);
  EXPECT_EQ(finding.fix, "use float32 on the processor (the default)");
}

TEST(System, IsJudgedInEveryRespect) {
  std::vector<std::string> names;
  for (const Finding& finding : check_system("no/such/folder/yet")) names.push_back(finding.what);
  EXPECT_EQ(names, (std::vector<std::string>{"memory", "disk", "results", "processes", "terminal"}));
}

}  // namespace
}  // namespace prism::cli
