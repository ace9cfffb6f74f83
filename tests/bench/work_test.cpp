// Compares work models and shapes with counts by hand.

#include "prism/bench/work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "prism/bench/optimizers.h"
#include "prism/io/error.h"
#include "prism/optim/registry.h"
#include "prism/train/summary.h"

namespace prism::bench {
namespace {

// m×n with m = αn.
constexpr double kM = 96, kN = 32, kAlpha = kM / kN, kCube = kN * kN * kN;
const std::vector<Shape> kTall = {{96, 32}}, kWide = {{32, 96}};

double flop(const std::string& name) { return step_work(*entrant(name).make_options(), kTall)->flop; }

TEST(Entrants, AreTheLibrarysDefaultsUnderTheNameOfTheOptimizer) {
  for (const auto& name : optimizer_names()) {
    const auto found = std::ranges::find(entrants(), name, &Entrant::name);
    if (found == entrants().end()) continue;
    EXPECT_EQ(found->make_options()->to_json(), make_options(name)->to_json()) << name;
  }
  EXPECT_EQ(entrant("prism_minimax9").make_options()->to_json(),
            make_options("prism", {{"coefficients", "minimax9"}})->to_json());
}

TEST(StepWork, CountsTheProductsOfEachPolynomial) {
  EXPECT_DOUBLE_EQ(flop("prism_minimax9"),
                   (17 + 4 * kAlpha) * kCube);                 // minimax9: 12 products, the first step in halves
  EXPECT_DOUBLE_EQ(flop("prism"), (21 + 4 * kAlpha) * kCube);  // the first step in halves,
  const double large = step_work(*make_options("prism"), {{512, 512}})->flop;
  EXPECT_DOUBLE_EQ(large, (18 + 4) * std::pow(512.0, 3));              // which large matrices add
  EXPECT_DOUBLE_EQ(flop("muon_minimax9"), (17 + 3 * kAlpha) * kCube);  // no DᵀD
  EXPECT_DOUBLE_EQ(flop("tikhonovmuon_minimax9"), flop("muon_minimax9"));
  EXPECT_DOUBLE_EQ(flop("prism_ema_minimax9"), flop("prism_minimax9"));  // DᵀD goes into the average instead
  EXPECT_DOUBLE_EQ(flop("prism_ema8_minimax9"), (17 + (3 + 1.0 / 8) * kAlpha) * kCube);  // at one step of 8
}

TEST(StepWork, OfTheInputsSideIsThatOfTheLongerGramMatrix) {
  const auto options = make_options("prism", {{"coefficients", "minimax9"}, {"covariance", "ema"}, {"side", "inputs"}});
  EXPECT_DOUBLE_EQ(step_work(*options, kTall)->flop, (17 + 4 * kAlpha) * kCube);
  const double cube = kM * kM * kM;  // 32×96, shaped by 96×96
  EXPECT_DOUBLE_EQ(step_work(*options, kWide)->flop, (17 + 4 / kAlpha) * cube);
}

TEST(StepWork, OfWhitenedMatricesAddsTheRootAndOneProduct) {
  const auto whitened = make_options(
      "prism", {{"coefficients", "minimax9"}, {"covariance", "ema"}, {"side", "whitened"}, {"root_every", 16}});
  EXPECT_DOUBLE_EQ(step_work(*whitened, kTall)->flop, flop("prism_ema_minimax9"));
  const double m = kN, n = kM;  // 32×96, shaped by 32×32
  EXPECT_DOUBLE_EQ(step_work(*whitened, kWide)->flop, flop("muon_minimax9") + m * n * n /* DᵀD */ +
                                                          2 * m * n * n /* X */ + 17 * n * n * n / 16 /* root */);
  EXPECT_DOUBLE_EQ(step_work(*whitened, kWide)->bytes, 20 * m * n + (2 + 1 + 1.0 / 16) * 4 * n * n);
}

TEST(StepWork, CountsEveryBytesReadAndWrittenOnce) {
  const auto bytes = [](const char* name) { return step_work(*entrant(name).make_options(), kTall)->bytes; };
  EXPECT_DOUBLE_EQ(bytes("prism_minimax9"), 20 * kM * kN);
  EXPECT_DOUBLE_EQ(bytes("muon_minimax9"), 20 * kM * kN);
  EXPECT_DOUBLE_EQ(bytes("prism_ema_minimax9"), 20 * kM * kN + 8 * kN * kN);
  EXPECT_DOUBLE_EQ(bytes("prism_ema8_minimax9"), 20 * kM * kN + 4.5 * kN * kN);  // Ĉ is written at one step of 8
  EXPECT_DOUBLE_EQ(bytes("adamw"), 28 * kM * kN);
}

TEST(StepWork, IsTheSameOfTheTranspose) {
  for (const char* name : {"prism_minimax9", "prism_ema_minimax9", "muon"}) {
    const auto options = entrant(name).make_options();
    EXPECT_DOUBLE_EQ(step_work(*options, kTall)->flop, step_work(*options, kWide)->flop);
    EXPECT_DOUBLE_EQ(step_work(*options, kTall)->bytes, step_work(*options, kWide)->bytes);
  }
}

TEST(StepWork, IsNotGuessedWhereItIsNotModeled) {
  EXPECT_FALSE(step_work(*make_options("soap"), kTall));
  EXPECT_FALSE(step_work(*entrant("prism_stacked").make_options(), kTall));
}

TEST(StepKernels, ComeInTheOrderOfTheirLaunches) {
  const auto kernels = *step_kernels(*entrant("prism_minimax9").make_options(), kTall);
  std::vector<std::string> labels;
  for (const auto& kernel : kernels) labels.push_back(kernel.label);
  EXPECT_EQ(labels, (std::vector<std::string>{"sample",
                                              "advance",
                                              "factor",
                                              "rewrite",
                                              "Gram",
                                              "squares",
                                              "rescale",
                                              "S = A² + pA + q, step 1",
                                              "Z = c₄S² + …, step 1",
                                              "V = ZR, step 1, halves",
                                              "R = VZ, step 1, halves",
                                              "S = A² + pA + q, step 2",
                                              "Z = c₄S² + …, step 2",
                                              "Q = QZ, step 2",
                                              "V = ZR, step 2",
                                              "R = VZ, step 2",
                                              "S = A² + pA + q, step 3",
                                              "Z = c₄S² + …, step 3",
                                              "Q = QZ, step 3",
                                              "W ← … − lr·TQ"}));
  EXPECT_DOUBLE_EQ(kernels[5].work.bytes, kN * kN);  // half of A
  EXPECT_DOUBLE_EQ(kernels[7].work.flop, kCube);
  EXPECT_DOUBLE_EQ(kernels[7].work.bytes, 4 * kN * kN);   // A read, S written
  EXPECT_DOUBLE_EQ(kernels[9].work.flop, 4 * kCube);      // full, two halves
  EXPECT_DOUBLE_EQ(kernels[9].work.bytes, 10 * kN * kN);  // Z and R in halves read, V in halves written
  EXPECT_DOUBLE_EQ(kernels[18].work.flop, 2 * kCube);     // the last Q is not forced to be symmetric
}

TEST(Peak, IsKnownOfTheDeviceThatWasMeasured) {
  ASSERT_TRUE(peak_of("NVIDIA H200"));
  EXPECT_DOUBLE_EQ(peak_of("NVIDIA H200")->floor_ms({790e12, 4.3e12}), 2000);
  EXPECT_FALSE(peak_of("NVIDIA A100"));
  EXPECT_FALSE(peak_of("AMD EPYC, 2 threads"));
}

TEST(ShapeSets, HaveTheMatricesOfTheirModels) {
  EXPECT_EQ(shape_set("22m").matrices.size(), 56U);
  // The embedding, the last norm, and two norms and three biases in each of 8 layers.
  EXPECT_EQ(shape_set("22m").rest.size(), 42U);
  EXPECT_EQ(shape_set("1b").matrices.size(), 168U);
  EXPECT_EQ(shape_set("1b").elements(), 1'082'130'432);
  EXPECT_EQ(shape_set("experts").matrices, std::vector<Shape>(256, {1024, 2048}));
  EXPECT_EQ(shape_set("odd").matrices.size(), 16U);
  EXPECT_EQ(shape_set("wide").elements(), 2 * 8192 * 28672);
  EXPECT_EQ(shape_set("lora").matrices, std::vector<Shape>(2000, {16, 4096}));
  const auto sorted = [](const std::string& name) {
    auto matrices = shape_set(name).matrices;
    std::ranges::sort(matrices);
    return matrices;
  };
  EXPECT_EQ(sorted("512x8"), sorted("22m"));
  EXPECT_EQ(sorted("2048x24"), sorted("1b"));
  for (const char* name : {"22M", "512x", "x8", "512x0", "500x8", "512x8x", "-16x2"})
    EXPECT_THROW(shape_set(name), Error);
}

TEST(Median, IsTheMiddleOrTheMeanOfTheTwo) {
  EXPECT_EQ(train::median({}), 0);
  EXPECT_EQ(train::median({3}), 3);
  EXPECT_EQ(train::median({9, 1, 4}), 4);
  EXPECT_EQ(train::median({9, 1, 4, 2}), 3);
}

}  // namespace
}  // namespace prism::bench
