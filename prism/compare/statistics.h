#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "prism/report/page.h"

namespace prism::compare {

// The t with P(T ≤ t) = p for Student's distribution with ν degrees of freedom; 0 < p < 1, ν > 0.
double student_quantile(double p, double degrees);
double student_cdf(double t, double degrees);

struct Interval {
  double low = 0, high = 0;
};

struct Estimate {
  double mean = 0;
  std::optional<Interval>
      interval;  // of the mean, at the confidence asked for; none from fewer than kLeastSeeds values
};

inline constexpr size_t kLeastSeeds = 3;
inline constexpr double kConfidence = 0.95;

// mean ± t_{(1+c)/2, n−1} · s/√n. Of differences between pairs it is the paired t interval.
Estimate mean_with_interval(std::span<const double> values, double confidence = kConfidence);

// A learning rate and the held-out loss it led to; infinity where the run diverged.
struct SweepPoint {
  double lr = 0;
  double loss = std::numeric_limits<double>::infinity();
};

using report::Edge;

inline double finite_or_infinity(double value) {
  return std::isfinite(value) ? value : std::numeric_limits<double>::infinity();
}

struct Sweep {
  SweepPoint best;
  Edge edge = Edge::None;  // the best rate is the first or the last of at least two

  // The rates around the best whose loss stays within `tolerance` of it. The ends lie where the line through
  // neighboring points, loss against log rate, crosses best + tolerance; beside a diverged run, at the last rate that
  // did not diverge. Open: still within it at the grid's end.
  double low = 0, high = 0;
  bool low_open = false, high_open = false;
  double factor() const { return high / low; }
};

// Nothing where every run diverged. Rates must differ; any order.
std::optional<Sweep> analyze_sweep(std::vector<SweepPoint> points, double tolerance);

// Where a curve first falls to `target`, x interpolated linearly between its points; nothing where it never does.
std::optional<double> first_crossing(std::span<const double> x, std::span<const double> loss, double target);

}  // namespace prism::compare
