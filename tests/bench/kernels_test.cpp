#include "prism/bench/kernels.h"

#include <gtest/gtest.h>

#include "prism/bench/library.h"

namespace prism::bench {
namespace {

const std::string kProduct = "prism::cuda::product_kernel<true>";

std::vector<Kernel> kernels_of(const char* name) { return *step_kernels(*entrant(name).make_options(), {{512, 128}}); }

// Returns the labels of launches, or "?" where none fits.
std::vector<std::string> labels(const std::vector<std::string>& names, const std::vector<Kernel>& kernels) {
  std::vector<std::string> result;
  for (const auto& match : match_launches(names, kernels)) result.push_back(match ? kernels[*match].label : "?");
  return result;
}

// Returns the launches of a chunk: `before` products, the norms, then the products of the iteration and the update.
std::vector<std::string> chunk(size_t before, size_t after, bool norms = true) {
  std::vector<std::string> names = {"prism::cuda::sample_kernel<float>", "prism::cuda::advance_kernel<float>",
                                    "prism::cuda::factor_kernel", "prism::cuda::rewrite_kernel<float>"};
  names.insert(names.end(), before, kProduct);
  if (norms) names.insert(names.end(), {"prism::cuda::squares_kernel", "prism::cuda::rescale_kernel"});
  names.insert(names.end(), after, kProduct);
  return names;
}

TEST(Launches, OfSeveralChunksAreFoundByTheirPlaces) {
  const auto kernels = kernels_of("prism_minimax9");
  auto names = chunk(2, 12 + 2);  // matrices of both orientations: two launches of Grams and of updates
  for (const auto& name : chunk(1, 12 + 1)) names.push_back(name);
  const auto found = labels(names, kernels);
  ASSERT_EQ(found.size(), names.size());
  EXPECT_EQ(found[1], "advance");
  EXPECT_EQ(found[4], "Gram");
  EXPECT_EQ(found[5], "Gram");
  EXPECT_EQ(found[6], "squares");
  EXPECT_EQ(found[8], "S = A² + pA + q, step 1");
  EXPECT_EQ(found[19], "Q = QZ, step 3");
  EXPECT_EQ(found[21], "W ← … − lr·TQ");
  EXPECT_EQ(found[22], "sample");
  EXPECT_EQ(found[26], "Gram");
  EXPECT_EQ(found[28], "rescale");
  EXPECT_EQ(found[29], "S = A² + pA + q, step 1");
  EXPECT_EQ(found.back(), "W ← … − lr·TQ");
}

TEST(Launches, OfTheAveragedCovarianceHaveItsProductFirst) {
  const auto found = labels(chunk(2 + 2, 12 + 2), kernels_of("prism_ema_minimax9"));
  EXPECT_EQ(found[4], "C ← βC + (1−β)DᵀD");
  EXPECT_EQ(found[5], "C ← βC + (1−β)DᵀD");
  EXPECT_EQ(found[6], "Gram");
  EXPECT_EQ(found[10], "S = A² + pA + q, step 1");
  EXPECT_EQ(found.back(), "W ← … − lr·TQ");
}

TEST(Launches, OfASetThatNeedsNoNormFollowEachOther) {
  const auto found = labels(chunk(1, 17 + 1, /*norms=*/false), kernels_of("prism"));
  EXPECT_EQ(found[4], "Gram");
  EXPECT_EQ(found[5], "Z = c₂A² + c₁A + c₀, step 1");
  EXPECT_EQ(found.back(), "W ← … − lr·TQ");
}

TEST(Launches, ThatDoNotFitAreNotGuessed) {
  const auto found =
      labels(chunk(1, 14), kernels_of("prism_minimax9"));  // 12 of the iteration, and three for Grams and updates
  ASSERT_EQ(found.size(), 21U);
  EXPECT_EQ(found[1], "advance");
  for (size_t i = 7; i < found.size(); ++i) EXPECT_EQ(found[i], "?");
  EXPECT_EQ(labels({"at::native::fill"}, kernels_of("prism_minimax9")), std::vector<std::string>{"?"});
}

TEST(Launches, OfThePortableKernelAreOneForEachStack) {
  const auto kernels = kernels_of("prism_minimax9");  // four shapes, Gram matrices of two sides
  const auto found = labels(chunk(4, 12 * 2 + 4), kernels);
  EXPECT_EQ(found[7], "Gram");
  EXPECT_EQ(found[10], "S = A² + pA + q, step 1");
  EXPECT_EQ(found[11], "S = A² + pA + q, step 1");
  EXPECT_EQ(found[33], "Q = QZ, step 3");
  EXPECT_EQ(found[34], "W ← … − lr·TQ");
  EXPECT_EQ(found.size(), 38U);
}

TEST(Launches, OfAllProductsOfTheIterationAreOneRow) {  // as on a Hopper GPU
  auto names = chunk(1, 0, /*norms=*/false);
  names.insert(names.end(), {"prism::cuda::sequence_kernel", kProduct});
  const auto apart = kernels_of("prism_minimax9"), kernels = as_launched(apart, names);
  EXPECT_EQ(labels(names, kernels),
            (std::vector<std::string>{"sample", "advance", "factor", "rewrite", "Gram", "iteration", "W ← … − lr·TQ"}));
  double flop = 0, joint = 0;
  for (const auto& kernel : apart) flop += kernel.kind == Kernel::Kind::Iteration ? kernel.work.flop : 0;
  for (const auto& kernel : kernels) joint += kernel.label == "iteration" ? kernel.work.flop : 0;
  EXPECT_DOUBLE_EQ(joint, flop);
}

TEST(Roofline, NamesTheBoundOfEachKernel) {
  const Peak peak{100e12, 1e12};
  const KernelTime products{"", 1, 1, {50e9, 0.1e9}}, copies{"", 1, 1, {1e9, 0.8e9}}, nothing{"", 1, 1, {}};
  EXPECT_STREQ(name_of(products.bound(peak)), "tensor");
  EXPECT_DOUBLE_EQ(products.share_of_bound(peak), 0.5);
  EXPECT_STREQ(name_of(copies.bound(peak)), "memory");
  EXPECT_DOUBLE_EQ(copies.share_of_bound(peak), 0.8);
  EXPECT_STREQ(name_of(nothing.bound(peak)), "launch");
}

// 10 ms, of which two products take 3 and 4; the library would need 2 (a symmetric result at half the cost) and 4.
TEST(Library, ReplacesTheTimeOfEachProduct) {
  const std::vector<Kernel> kernels = {{"advance", Kernel::Kind::Elementwise, {0, 1e9}},
                                       {"Gram", Kernel::Kind::Gram, {2e9, 0}},
                                       {"update", Kernel::Kind::Update, {8e9, 0}}};
  Roofline roofline{{{"advance", 1, 3, {0, 1e9}}, {"Gram", 1, 3, {2e9, 0}}, {"update", 1, 4, {8e9, 0}}}, 3, 10, 0};
  add_library_rates(roofline, kernels, {{Kernel::Kind::Gram, 1e12}, {Kernel::Kind::Update, 2e12}});
  EXPECT_FALSE(roofline.kernels[0].library_flops);
  EXPECT_DOUBLE_EQ(library_ms(roofline), 9);
}

TEST(Roofline, AddsUpTheLaunchesOfAKernel) {
  std::vector<Span> spans;
  uint64_t now = 0;
  for (const auto& name : chunk(1, 13)) {
    spans.push_back({name, now, now + 1'000'000, 0});
    now += 1'000'000;
  }
  spans.push_back({"memset", now + 500'000, now + 1'500'000, 0});
  const auto result = roofline(spans, kernels_of("prism_minimax9"));
  EXPECT_EQ(result.launches, 21);
  EXPECT_DOUBLE_EQ(result.total_ms, 21.5);
  EXPECT_DOUBLE_EQ(result.idle_ms, 0.5);
  EXPECT_EQ(result.kernels.front().label, "sample");
  EXPECT_EQ(result.kernels.back().label, "memset");
  EXPECT_EQ(result.kernels.size(), 21U);
}

}  // namespace
}  // namespace prism::bench
