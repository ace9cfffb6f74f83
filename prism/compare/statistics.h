#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "prism/report/page.h"

namespace prism::compare {

// Student's distribution with ν = `degrees` > 0 degrees of freedom: the t with P(T ≤ t) = p, 0 < p < 1, and P(T ≤ t).
double student_quantile(double p, double degrees);
double student_cdf(double t, double degrees);

struct Interval {
  double low = 0, high = 0;
};

struct Estimate {
  double mean = 0;
  std::optional<Interval> interval;  // of the mean; none for fewer than kLeastSeeds values
};

inline constexpr size_t kLeastSeeds = 3;
inline constexpr double kConfidence = 0.95;
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Returns mean ± t_{(1+c)/2, n−1} · s/√n, c the confidence. For differences of pairs this is the paired t interval.
Estimate mean_with_interval(std::span<const double> values, double confidence = kConfidence);

// A learning rate and its held-out loss; infinity if the run diverged.
struct SweepPoint {
  double lr = 0;
  double loss = kInfinity;
};

using report::Edge;

inline double finite_or_infinity(double value) { return std::isfinite(value) ? value : kInfinity; }

struct Sweep {
  SweepPoint best;
  Edge edge = Edge::None;  // the best rate is the first or the last of at least two

  // The rates around the best whose loss stays within `tolerance` of it. An end lies where the line through neighboring
  // points, loss against log rate, crosses best + tolerance; next to a diverged run, at the last rate that did not
  // diverge. It is open if the grid ends first.
  double low = 0, high = 0;
  bool low_open = false, high_open = false;
  double factor() const { return high / low; }
};

// Returns nothing if every run diverged. The rates must differ, in any order.
std::optional<Sweep> analyze_sweep(std::vector<SweepPoint> points, double tolerance);

// Returns the x at which a curve first falls to `target`, linearly interpolated; nothing if it never does.
std::optional<double> first_crossing(std::span<const double> x, std::span<const double> loss, double target);

}  // namespace prism::compare
