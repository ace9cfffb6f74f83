#include "prism/compare/statistics.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numbers>
#include <stdexcept>

namespace prism::compare {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Integrates the density Γ((ν+1)/2)/(√(νπ)Γ(ν/2)) · (1 + x²/ν)^(−(ν+1)/2) up to t by Simpson's rule, without beta
// functions.
double cdf_by_integration(double t, double degrees) {
  const auto density = [&](double x) {
    const double logarithm = std::lgamma((degrees + 1) / 2) - std::lgamma(degrees / 2) -
                             0.5 * std::log(degrees * std::numbers::pi) -
                             (degrees + 1) / 2 * std::log1p(x * x / degrees);
    return std::exp(logarithm);
  };
  constexpr int kPieces = 20000;
  const double h = t / kPieces;
  double sum = density(0) + density(t);
  for (int i = 1; i < kPieces; ++i) sum += density(i * h) * (i % 2 == 1 ? 4 : 2);
  return 0.5 + sum * h / 3;
}

TEST(Student, QuantilesAreThoseOfTheTables) {
  struct Row {
    double p, degrees, t;
  };
  constexpr std::array kTable = {
      Row{0.975, 1, 12.7062047362}, Row{0.975, 2, 4.3026527297},   Row{0.975, 3, 3.1824463053},
      Row{0.975, 4, 2.7764451052},  Row{0.975, 5, 2.5705818356},   Row{0.975, 9, 2.2621571628},
      Row{0.975, 10, 2.2281388520}, Row{0.975, 30, 2.0422724563},  Row{0.975, 100, 1.9839715185},
      Row{0.95, 2, 2.9199855804},   Row{0.995, 4, 4.6040948714},   Row{0.995, 10, 3.1692726726},
      Row{0.9, 7, 1.4149239277},    Row{0.9995, 20, 3.8495162749},
  };
  for (const auto& [p, degrees, t] : kTable) EXPECT_NEAR(student_quantile(p, degrees), t, 1e-9) << p << " " << degrees;
}

TEST(Student, HasItsClosedFormsForOneTwoAndFourDegrees) {
  for (double p = 0.51; p < 0.9999; p += 0.007) {
    const double a = 4 * p * (1 - p), q = std::cos(std::acos(std::sqrt(a)) / 3) / std::sqrt(a);
    EXPECT_NEAR(student_quantile(p, 1) / std::tan(std::numbers::pi * (p - 0.5)), 1, 1e-10) << p;
    EXPECT_NEAR(student_quantile(p, 2) / ((2 * p - 1) * std::sqrt(2 / a)), 1, 1e-10) << p;
    EXPECT_NEAR(student_quantile(p, 4) / (2 * std::sqrt(q - 1)), 1, 1e-9) << p;
  }
}

TEST(Student, IsTheIntegralOfItsDensity) {
  for (const double degrees : {1.0, 2.0, 3.0, 4.0, 6.0, 11.0, 29.0, 200.0}) {
    for (const double t : {0.01, 0.5, 1.0, 2.0, 4.0, 9.0}) {
      EXPECT_NEAR(student_cdf(t, degrees), cdf_by_integration(t, degrees), 1e-11) << t << " " << degrees;
    }
  }
}

TEST(Student, IsSymmetricAndTendsToTheNormalDistribution) {
  EXPECT_EQ(student_cdf(0, 5), 0.5);
  EXPECT_NEAR(student_quantile(0.5, 5), 0, 1e-12);
  EXPECT_EQ(student_quantile(0.2, 7), -student_quantile(0.8, 7));
  EXPECT_NEAR(student_cdf(-1.7, 6), 1 - student_cdf(1.7, 6), 1e-15);
  EXPECT_NEAR(student_quantile(0.975, 1e8), 1.959963985, 1e-6);
  for (const double p : {0.6, 0.9, 0.975, 0.999}) EXPECT_NEAR(student_cdf(student_quantile(p, 6), 6), p, 1e-13);
  EXPECT_THROW(student_quantile(1, 3), std::logic_error);
  EXPECT_THROW(student_quantile(0.9, 0), std::logic_error);
}

TEST(Interval, OfThePairedSleepExampleIsTheOneInTheTextbooks) {
  // Student 1908: hours of extra sleep, second drug less first, ten patients.
  const std::array differences = {1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4};
  const Estimate estimate = mean_with_interval(differences);
  EXPECT_NEAR(estimate.mean, 1.58, 1e-12);
  ASSERT_TRUE(estimate.interval);
  EXPECT_NEAR(estimate.interval->low, 0.7001142, 1e-7);
  EXPECT_NEAR(estimate.interval->high, 2.4598858, 1e-7);
}

TEST(Interval, NeedsThreeValuesThatAreFinite) {
  EXPECT_FALSE(mean_with_interval(std::array{1.0}).interval);
  EXPECT_FALSE(mean_with_interval(std::array{1.0, 2.0}).interval);
  EXPECT_TRUE(mean_with_interval(std::array{1.0, 2.0, 4.0}).interval);
  const Estimate diverged = mean_with_interval(std::array{1.0, 2.0, kInfinity});
  EXPECT_EQ(diverged.mean, kInfinity);
  EXPECT_FALSE(diverged.interval);
  EXPECT_EQ(mean_with_interval(std::array{2.0, 2.0, 2.0}).interval->low, 2);
  EXPECT_THROW(mean_with_interval({}), std::logic_error);
}

TEST(Sweep, FindsTheBestRateAndWhetherItLiesAtTheEdge) {
  const auto edge = [](std::vector<SweepPoint> points) { return analyze_sweep(std::move(points), 0.02)->edge; };
  EXPECT_EQ(edge({{0.1, 3}, {0.2, 2}, {0.4, 3}}), Edge::None);
  EXPECT_EQ(edge({{0.4, 3}, {0.1, 1}, {0.2, 2}}), Edge::Low) << "in any order";
  EXPECT_EQ(edge({{0.1, 3}, {0.2, 2}, {0.4, 1}}), Edge::High);
  EXPECT_EQ(edge({{0.1, 3}}), Edge::None) << "one rate has no neighbors to be beyond";
  EXPECT_EQ(edge({{0.1, 2}, {0.2, kInfinity}}), Edge::Low) << "a diverged neighbor tells nothing of the other side";
  EXPECT_EQ(analyze_sweep({{0.4, 3}, {0.1, 1}, {0.2, 2}}, 0.02)->best.lr, 0.1);
  EXPECT_FALSE(analyze_sweep({{0.1, kInfinity}, {0.2, kInfinity}}, 0.02));
  EXPECT_FALSE(analyze_sweep({}, 0.02));
}

TEST(Sweep, OfEqualLossesTakesTheLowerRate) {
  EXPECT_EQ(analyze_sweep({{0.2, 2}, {0.1, 2}, {0.4, 2}}, 0.02)->best.lr, 0.1);
}

TEST(Tolerance, IsInterpolatedInTheLogarithmOfTheRate) {
  // Loss 2 + (log₁₀ lr + 1)² at five rates; the lines beside the best cross 2.25 a quarter of a decade out.
  const auto sweep = analyze_sweep({{0.001, 6}, {0.01, 3}, {0.1, 2}, {1, 3}, {10, 6}}, 0.25);
  EXPECT_NEAR(std::log10(sweep->low), -1.25, 1e-12);
  EXPECT_NEAR(std::log10(sweep->high), -0.75, 1e-12);
  EXPECT_NEAR(sweep->factor(), std::pow(10, 0.5), 1e-12);
  EXPECT_FALSE(sweep->low_open || sweep->high_open);
}

TEST(Tolerance, TakesInNeighborsThatAreGoodThemselves) {
  const auto sweep = analyze_sweep({{0.01, 2.6}, {0.02, 2.01}, {0.04, 2}, {0.08, 2.02}, {0.16, 2.04}}, 0.02);
  EXPECT_NEAR(sweep->low, 0.02 * std::pow(2, -0.01 / 0.59), 1e-12);
  EXPECT_NEAR(sweep->high, 0.08, 1e-12) << "exactly at the limit is within it";
}

TEST(Tolerance, DoesNotJumpOverABadRate) {
  const auto sweep = analyze_sweep({{0.01, 2}, {0.1, 3}, {1, 2.001}}, 0.5);
  EXPECT_NEAR(std::log10(sweep->high), -1.5, 1e-12);
}

TEST(Tolerance, EndsAtTheLastRateBeforeADivergedOne) {
  const auto sweep = analyze_sweep({{0.01, 2.01}, {0.02, 2}, {0.04, kInfinity}}, 0.02);
  EXPECT_EQ(sweep->high, 0.02);
  EXPECT_FALSE(sweep->high_open) << "the run beyond is known to be bad";
  EXPECT_EQ(sweep->low, 0.01);
  EXPECT_TRUE(sweep->low_open) << "nothing is known below the grid";
}

TEST(Crossing, IsWhereTheLineBetweenEvaluationsReachesTheLoss) {
  const std::array tokens = {100.0, 200.0, 300.0, 400.0};
  const std::array loss = {4.0, 3.0, 3.5, 2.0};
  EXPECT_EQ(first_crossing(tokens, loss, 3.5), 150.0);
  EXPECT_EQ(first_crossing(tokens, loss, 3.0), 200.0);
  EXPECT_EQ(first_crossing(tokens, loss, 2.75), 350.0);
  EXPECT_EQ(first_crossing(tokens, loss, 5.0), 100.0) << "no earlier point is known";
  EXPECT_FALSE(first_crossing(tokens, loss, 1.9));
  EXPECT_EQ(first_crossing(tokens, std::array{kInfinity, 2.0, 1.0, 1.0}, 3.0), 200.0);
  EXPECT_FALSE(first_crossing({}, {}, 1));
}

}  // namespace
}  // namespace prism::compare
