// Carries out the plan of the Gram iteration on a 1×1 matrix R = r, where every product is a product of numbers and Q
// must equal the polynomials at r. Needs no GPU.

#include "prism/cuda/iteration.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace prism::cuda::test {
namespace {

// Returns q with x·q = the composite of the polynomials at x, where r = x².
double direct(const std::vector<GramStep>& steps, double r) {
  double q = 1;
  for (const auto& step : steps) {
    const double a = step.centered ? r - 1 : r;
    double z = 0;
    for (auto c = step.c.rbegin(); c != step.c.rend(); ++c) z = z * a + *c;
    q *= z;
    r *= z * z;
  }
  return q;
}

constexpr int64_t kSmall = 64, kLarge = 4096;  // sides

// `missing` is the factor that the first A lacks; `low` is the part of A and V that is in their low halves.
double planned(const Iteration& plan, int64_t side, double r, double missing, double low, double& largest) {
  constexpr double kUnset = 1e300;  // reading a buffer before it is written fails the test
  std::array<double, kBuffers> buffer{};
  buffer.fill(kUnset);
  const double A = plan.A_scale * r / missing;
  buffer[kA] = plan.A_split ? (1 - low) * A : A;
  buffer[kA_low] = plan.A_split ? low * A : kUnset;
  const auto read = [&](Buffer b) { return b == kNone ? 0 : buffer[b]; };
  for (const auto& p : plan.products) {
    const double multiplied = p.adds_low(side) ? 0 : 1, halves = (1 - multiplied) * (read(p.X_low) + read(p.Y_low));
    const double sum = (buffer[p.X] + multiplied * read(p.X_low)) * (buffer[p.Y] + multiplied * read(p.Y_low));
    const double v = std::pow(missing, p.alpha_power) * (p.alpha * sum + p.added * halves) +
                     p.c1 * std::pow(missing, p.c1_power) * read(p.C1) + p.diagonal;
    for (const Buffer operand : {p.X, p.Y, p.X_low, p.Y_low, p.C1}) {
      EXPECT_TRUE(operand == kNone || (operand != p.high && operand != p.low)) << "a product writes over its operand";
    }
    EXPECT_TRUE(p.added == 0 || p.C1 == kNone) << "an added low half takes the place of C1";
    buffer[p.high] = p.low != kNone ? (1 - low) * v : v;
    if (p.low != kNone) buffer[p.low] = low * v;
    largest = std::max(largest, std::abs(v));
  }
  return buffer[plan.Q] / plan.Q_scale;
}

const std::vector<GramStep> kJordan(5, {{3.4445, -4.7750, 2.0315}, false, false});
const GramStep kJordanSplit = {{3.4445, -4.7750, 2.0315}, false, true};

const std::vector<std::vector<GramStep>> kSets = {
    kJordan,
    {kJordanSplit, kJordanSplit, kJordan[2]},
    {{{4, -6, 3}, false, false}},
    {{{8, -20, 18, -5, 0.5}, false, true}, {{1, -0.5, 0.3}, true, false}},
    {{{14.80094337, -144.4595382, 480.2615616, -617.0305152, 268.3831496}, false, true},
     {{0.3, -1.2, 0.8, -0.4, 0.5}, true, true},
     {{1, -0.5, 0.4, -0.3, 0.35}, true, false}},
};

TEST(IterationPlan, IsThePolynomialsOfTheSteps) {
  for (size_t s = 0; s < kSets.size(); ++s) {
    for (const double bound : {1.0, 1.02}) {
      const Iteration plan = plan_iteration(kSets[s], bound);
      for (const double x : {0.0, 1e-3, 0.1, 0.5, 0.9}) {
        const double r = x * x / (bound * bound);
        const double expected = direct(kSets[s], r);
        for (const double missing : {1.0, 7.3}) {
          for (const int64_t side : {kSmall, kLarge}) {
            double largest = 0;
            EXPECT_NEAR(planned(plan, side, r, missing, /*low=*/0, largest), expected,
                        1e-5 * std::max(1.0, std::abs(expected)))
                << "set " << s << ", side " << side << ", x " << x << ", factor " << missing;
            EXPECT_LE(largest, 65504 / 3.) << "set " << s << ", x " << x;
          }
        }
      }
    }
  }
}

const std::vector<GramStep> kSplitJordan = {kJordanSplit, kJordanSplit, kJordan[2], kJordan[3], kJordan[4]};

// Twelve steps of slope 2.
const std::vector<GramStep> kConverged = [] {
  std::vector<GramStep> steps(12, {{2, -1.5, 0.5}, false, false});
  for (size_t k = 0; k < 8; ++k) steps[k].split = true;
  return steps;
}();

// The second step adds the low halves, and in large matrices the first does, too. Where R is small, that is the same as
// their product with Z. A quarter of A and V is in their low halves here; the last steps show what became of it.
TEST(IterationPlan, CarriesLowHalvesOfSmallEigenvalues) {
  const Iteration plan = plan_iteration(kSplitJordan, 1);
  for (const double missing : {1.0, 7.3}) {
    for (const double r : {1e-6, 1e-5}) {
      const double expected = direct(kSplitJordan, r);
      for (const int64_t side : {kSmall, kLarge}) {
        double largest = 0;
        EXPECT_NEAR(planned(plan, side, r, missing, /*low=*/0.25, largest), expected, 2e-3 * expected)
            << side << ' ' << r << ' ' << missing;
      }
    }
  }
}

TEST(IterationPlan, AddsLowHalvesOnlyWhereTheErrorStaysSmall) {
  const auto adds = [](const std::vector<GramStep>& steps, int64_t side) {
    std::vector<bool> result;  // of each product with a low half
    for (const auto& p : plan_iteration(steps, 1).products) {
      if (p.X_low != kNone || p.Y_low != kNone) result.push_back(p.adds_low(side));
    }
    return result;
  };
  EXPECT_EQ(adds(kSplitJordan, kSmall), (std::vector{false, false, true, true}));
  EXPECT_EQ(adds(kSplitJordan, kLarge), (std::vector{true, true, true, true}));
  for (const int64_t side : {kSmall, kLarge}) {
    EXPECT_EQ(adds(kSets.back(), side), (std::vector{false, false, false, false}));  // steep; and centered
    EXPECT_FALSE(adds(kConverged, side).front());
    EXPECT_TRUE(adds(kConverged, side).back());
  }
}

TEST(IterationPlan, LeavesOutOnlyWhatIsNotRead) {
  std::vector<std::vector<GramStep>> sets = kSets;
  sets.push_back(kSplitJordan);
  sets.push_back(kConverged);
  sets.push_back(std::vector<GramStep>(2, {{1, -0.5, 0.3}, true, false}));  // the first V adds Z
  for (size_t s = 0; s < sets.size(); ++s) {
    const Iteration plan = plan_iteration(sets[s], 1);
    std::array<bool, kBuffers> lower{};
    lower[kA] = lower[kA_low] = plan.A_lower;
    for (const auto& p : plan.products) {
      EXPECT_EQ(p.X_lower, lower[p.X]) << "set " << s;
      EXPECT_EQ(p.Y_lower, lower[p.Y]) << "set " << s;
      for (const Buffer b : {p.C1, p.added != 0 ? p.X_low : kNone, p.added != 0 ? p.Y_low : kNone}) {
        EXPECT_TRUE(b == kNone || !lower[b] || p.symmetric) << "set " << s << ": adds what was left out";
      }
      EXPECT_TRUE(p.X_low == kNone || lower[p.X_low] == lower[p.X]) << "set " << s;
      EXPECT_TRUE(p.Y_low == kNone || lower[p.Y_low] == lower[p.Y]) << "set " << s;
      EXPECT_TRUE(p.symmetric || !p.lower) << "set " << s;
      lower[p.high] = p.lower;
      if (p.low != kNone) lower[p.low] = p.lower;
    }
    EXPECT_FALSE(lower[plan.Q]) << "set " << s;
  }
  const Iteration steep = plan_iteration(kSets.back(), 1);
  EXPECT_TRUE(steep.A_lower);
  for (const auto& p : steep.products) EXPECT_EQ(p.lower, p.symmetric) << "the last product is not symmetric";
  EXPECT_FALSE(plan_iteration(kSplitJordan, 1).A_lower);  // the first V is not symmetric and may add the low half
}

TEST(IterationPlan, ReadsInBytesWhatIsWrittenInBytes) {
  std::vector<std::vector<GramStep>> sets = kSets;
  sets.push_back(kSplitJordan);
  sets.push_back(kConverged);
  for (size_t s = 0; s < sets.size(); ++s) {
    const Iteration plan = plan_iteration(sets[s], 1);
    std::array<bool, kBuffers> in_bytes{};
    in_bytes[kA_low] = plan.A_bytes;
    Buffer copied = kNone;  // kZ_bytes is a copy of it
    for (const auto& p : plan.products) {
      if (p.X_low != kNone || p.Y_low != kNone) {
        EXPECT_EQ(in_bytes[p.X_low != kNone ? p.X_low : p.Y_low], p.reads_bytes) << "set " << s;
        EXPECT_TRUE(!p.reads_bytes || copied == (p.X_low != kNone ? p.Y : p.X)) << "set " << s;
        EXPECT_TRUE(!p.reads_bytes || p.added == 0) << "set " << s;
      }
      if (p.low != kNone) in_bytes[p.low] = p.writes_bytes;
      if (p.copy == kZ_bytes) copied = p.high;
    }
  }
  EXPECT_FALSE(plan_iteration(kSplitJordan, 1).A_bytes);  // large matrices add
  EXPECT_TRUE(plan_iteration(kSets.back(), 1).A_bytes);
  EXPECT_FALSE(plan_iteration(kConverged, 1).A_bytes);  // its error would grow by a million
}

}  // namespace
}  // namespace prism::cuda::test
