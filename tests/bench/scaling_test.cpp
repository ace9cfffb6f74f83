// The model of a step on many ranks, where its answer is known.

#include "prism/bench/scaling.h"

#include <gtest/gtest.h>

namespace prism::bench {
namespace {

const ShapeSet kFour = {"four", std::vector<Shape>(4, {64, 64}), {{100}}};
const Rates kRates = {{1e9, 2e9, 3e9, 8e9}, 1e9};
const Link kLink = {1e6, 0};

TEST(Scaling, OneRankSendsNothing) {
  for (const auto scheme : kSchemes) {
    const auto line = scaling(kFour, scheme, 1, kRates, kLink);
    EXPECT_EQ(line.traffic_bytes, 0);
    EXPECT_EQ(line.link_s, 0);
    EXPECT_EQ(line.balance, 1);
  }
  EXPECT_EQ(scaling(kFour, Scheme::Owned, 1, kRates, kLink).work_s,
            scaling(kFour, Scheme::Replicated, 1, kRates, kLink).work_s);
}

TEST(Scaling, GradientsAndWeightsTravelOnceEach) {
  const double elements = 4 * 64 * 64 + 100;
  for (const auto scheme : {Scheme::Replicated, Scheme::Owned})
    EXPECT_DOUBLE_EQ(scaling(kFour, scheme, 4, kRates, kLink).traffic_bytes, 8 * 0.75 * elements);
  EXPECT_DOUBLE_EQ(scaling(kFour, Scheme::DionLike, 4, kRates, kLink).traffic_bytes, 8 * 0.75 * (4 * 16 * 128 + 100));
}

TEST(Scaling, FourMatricesOnFourRanksTakeTheTimeOfOne) {
  const ShapeSet one = {"one", {{64, 64}}, {}}, four = {"four", std::vector<Shape>(4, {64, 64}), {}};
  const auto owned = scaling(four, Scheme::Owned, 4, kRates, kLink);
  EXPECT_DOUBLE_EQ(owned.work_s, scaling(one, Scheme::Replicated, 1, kRates, kLink).work_s);
  EXPECT_DOUBLE_EQ(owned.balance, 1);
  EXPECT_DOUBLE_EQ(owned.state_bytes, 4 * 64 * 64);
  EXPECT_DOUBLE_EQ(scaling(four, Scheme::Owned, 8, kRates, kLink).balance, 0.5)
      << "half of the ranks have nothing to do";
}

TEST(Scaling, RatesAreThoseMeasuredAndLinearBetween) {
  EXPECT_EQ(kRates.flops_at(1), 1e9);
  EXPECT_EQ(kRates.flops_at(2), 2e9);
  EXPECT_EQ(kRates.flops_at(3), 3e9);
  EXPECT_DOUBLE_EQ(kRates.flops_at(4), 4e9);
  EXPECT_EQ(kRates.flops_at(8), 8e9);
  EXPECT_EQ(kRates.flops_at(100), 8e9);
}

}  // namespace
}  // namespace prism::bench
