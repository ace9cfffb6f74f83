#include "prism/train/machine.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <ctime>

using namespace prism;

TEST(Machine, FindsTheVersionOfTheDriverInWhatItSaysOfItself) {
  EXPECT_EQ(train::driver_version("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build"),
            "580.65.06");
  EXPECT_EQ(train::driver_version("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183  Sun May 12"), "535.183");
  EXPECT_EQ(train::driver_version(""), "");
}

TEST(Machine, SaysTheTimeInUtcAndNoGpuForTheProcessor) {
  const auto before = std::time(nullptr);
  const auto facts = train::machine(at::kCPU);
  std::tm date{};
  const char* end = strptime(facts.date.c_str(), "%Y-%m-%dT%H:%M:%SZ", &date);
  ASSERT_TRUE(end != nullptr && *end == '\0') << facts.date;
  EXPECT_GE(timegm(&date), before);
  EXPECT_LE(timegm(&date), std::time(nullptr));
  EXPECT_EQ(facts.gpu, "");
}

TEST(PeakMemory, OfTheHostSeesWhatWasHeldAndLetGo) {
  train::reset_peak_memory(at::kCPU);
  const auto before = train::peak_memory(at::kCPU);
  constexpr int64_t kBytes = int64_t{64} << 20;
  at::ones({kBytes / 4});
  const auto after = train::peak_memory(at::kCPU);
  EXPECT_GE(after.host, before.host + kBytes / 2);
  EXPECT_EQ(after.device, 0);
}
