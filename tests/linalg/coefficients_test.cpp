#include "prism/linalg/coefficients.h"

#include <cmath>
#include <utility>

#include "tests/close.h"

namespace prism {
namespace {

// The least and greatest value of the composite polynomial on [low, high].
std::pair<double, double> range(const Coefficients& set, double low, double high) {
  double least = 1e300;
  double greatest = -1e300;
  constexpr int kPoints = 100000;
  for (int i = 0; i <= kPoints; ++i) {
    const double value = set(low * std::pow(high / low, static_cast<double>(i) / kPoints));
    least = std::min(least, value);
    greatest = std::max(greatest, value);
  }
  return {least, greatest};
}

TEST(Coefficients, CompositeOfJordanIsTheQuinticAppliedFiveTimes) {
  for (double x : {0.001, 0.1, 0.5, 1.0}) {
    double expected = x;
    for (int k = 0; k < 5; ++k) {
      expected = 3.4445 * expected - 4.7750 * std::pow(expected, 3) + 2.0315 * std::pow(expected, 5);
    }
    EXPECT_NEAR(Coefficients("jordan")(x), expected, 1e-12);
  }
  EXPECT_EQ(Coefficients(), Coefficients("jordan"));
}

TEST(Coefficients, EachSetEndsInItsDocumentedRange) {
  const auto expect_range = [](const char* name, double low, double least, double greatest) {
    const auto [from, to] = range(name, low, 1);
    EXPECT_NEAR(from, least, 0.005) << name;
    EXPECT_NEAR(to, greatest, 0.005) << name;
  };
  expect_range("jordan", 1e-2, 0.68, 1.13);
  expect_range("jordan", 3e-3, 0.68, 1.20);
  expect_range("you", 1e-2, 0.98, 1.03);
  expect_range("minimax9", 3e-3 * 1.05, 0.88, 1.12);
  expect_range("polar_express", 1e-3, 1, 1);
  expect_range("converged", 1e-2, 1, 1);
}

TEST(Coefficients, SlopeAtZeroIsTheProductOfTheFirstCoefficients) {
  EXPECT_NEAR(Coefficients("jordan")(1e-9) / 1e-9, 485, 0.5);
  EXPECT_NEAR(Coefficients("minimax9")(1e-9) / 1e-9, 344 / 1.05, 0.5);
}

TEST(Coefficients, PolarExpressIsSafeALittleAboveOne) {
  for (const int64_t steps : {5, 8})
    EXPECT_NEAR(Coefficients("polar_express").with_steps(steps)(1.04), 1, 0.03) << steps;
}

TEST(Coefficients, MinimaxDivergesAboveItsBoundOnly) {
  EXPECT_DOUBLE_EQ(Coefficients("minimax9").bound(), 1.05);
  EXPECT_LE(std::abs(Coefficients("minimax9")(1.05)), 1.13);
  EXPECT_GT(std::abs(Coefficients("minimax9")(1.11)), 1.5);
}

TEST(Coefficients, FewerStepsAreTheFirstOnesAndMoreRepeatTheLast) {
  const Coefficients you("you");
  const auto& all = you.polynomials();
  const auto two = you.with_steps(2);
  EXPECT_EQ(two.polynomials(), std::vector<Polynomial>(all.begin(), all.begin() + 2));
  const auto seven = you.with_steps(7);
  auto expected = all;
  expected.push_back(all.back());
  expected.push_back(all.back());
  EXPECT_EQ(seven.polynomials(), expected);
  EXPECT_EQ(you.with_steps(0), you);
  EXPECT_EQ(you.with_steps(5), you);
  EXPECT_EQ(Coefficients("minimax9").with_steps(2).bound(), 1.05);
  EXPECT_EQ(Coefficients("minimax9").with_steps(2).norm(), Norm::Schatten4);
}

TEST(Coefficients, AreNamedOrGivenByTheUser) {
  for (const auto& name : Coefficients::names()) EXPECT_EQ(Coefficients(name).name(), name);
  const Coefficients own({{1.5, -0.5}, {2, -1.5, 0.5}});
  EXPECT_EQ(own.name(), "");
  EXPECT_EQ(own.bound(), 1);
  EXPECT_EQ(own.norm(), Norm::Frobenius);
  const double x = 1.5 * 0.4 - 0.5 * std::pow(0.4, 3);
  EXPECT_DOUBLE_EQ(own(0.4), 2 * x - 1.5 * std::pow(x, 3) + 0.5 * std::pow(x, 5));
}

TEST(Coefficients, RefuseWhatIsNoSetAndSayWhatIs) {
  EXPECT_MESSAGE(Coefficients("muon"),
                 "coefficients: expected one of jordan, you, polar_express, minimax9, converged or one list "
                 "of numbers per "
                 "step, got 'muon'");
  EXPECT_MESSAGE(Coefficients(std::vector<Polynomial>{}),
                 "coefficients: expected at least one step, got an empty list");
  EXPECT_MESSAGE(Coefficients(std::vector<Polynomial>{{2, -1.5, 0.5}, {1}}),
                 "coefficients: step 2 must have two or more numbers (of x, x³, x⁵, …), got 1");
  EXPECT_MESSAGE(Coefficients(std::vector<Polynomial>{{2, NAN}}), "coefficients: step 1 must be finite, got nan");
  EXPECT_MESSAGE(Coefficients("you").with_steps(-1), "steps: expected 1 or more (0 for the length of the set), got -1");
}

TEST(InverseRootPolynomials, EndInTheNewtonIterationOfTheirRoot) {
  for (const int64_t r : {2, 4}) {
    const auto& last = inverse_root_polynomials(r).back();
    const double h = last[0] + last[1] + last[2];  // at the fixed point 1
    const double slope =
        h + static_cast<double>(r) * (last[1] + 2 * last[2]);  // of x·h(x)^r, which makes convergence quadratic
    EXPECT_DOUBLE_EQ(h, 1) << r;
    EXPECT_NEAR(slope, 0, 1e-15) << r;
  }
}

}  // namespace
}  // namespace prism
