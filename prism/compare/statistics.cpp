#include "prism/compare/statistics.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace prism::compare {
namespace {

// The continued fraction of the incomplete beta function (DLMF 8.17.22), by the modified Lentz method. Converges fast
// for x < (a+1)/(a+b+2).
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300, kEpsilon = 1e-16;
  constexpr int kMostTerms = 10000;
  const auto kept = [](double value) { return std::abs(value) < kTiny ? kTiny : value; };
  double c = 1, d = 1 / kept(1 - (a + b) * x / (a + 1)), fraction = d;
  for (int m = 1; m <= kMostTerms; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / kept(1 + even * d);
    c = kept(1 + even / c);
    fraction *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / kept(1 + odd * d);
    c = kept(1 + odd / c);
    fraction *= d * c;
    if (std::abs(d * c - 1) < kEpsilon) break;
  }
  return fraction;
}

double incomplete_beta(double a, double b, double x) {  // regularized
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double factor =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return factor * beta_fraction(a, b, x) / a;
  return 1 - factor * beta_fraction(b, a, 1 - x) / b;
}

// Returns the rate at which the loss crosses the limit between two neighbors.
double crossing_rate(const SweepPoint& inside, const SweepPoint& outside, double limit) {
  if (!std::isfinite(outside.loss)) return inside.lr;
  const double share = (limit - inside.loss) / (outside.loss - inside.loss);
  return std::exp(std::log(inside.lr) + share * (std::log(outside.lr) - std::log(inside.lr)));
}

struct End {
  double lr = 0;
  bool open = false;
};

// Finds the end of the range within the limit, from the best point in one direction (step −1 or 1).
End range_end(const std::vector<SweepPoint>& points, size_t best, int step, double limit) {
  auto i = static_cast<int64_t>(best);
  const auto last = static_cast<int64_t>(points.size()) - 1;
  while (true) {
    const int64_t next = i + step;
    if (next < 0 || next > last) return {points[static_cast<size_t>(i)].lr, true};
    const auto& neighbor = points[static_cast<size_t>(next)];
    if (!(neighbor.loss <= limit)) return {crossing_rate(points[static_cast<size_t>(i)], neighbor, limit), false};
    i = next;
  }
}

}  // namespace

double student_cdf(double t, double degrees) {
  const double tail = incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)) / 2;
  return t > 0 ? 1 - tail : tail;
}

double student_quantile(double p, double degrees) {
  if (!(p > 0 && p < 1 && degrees > 0)) throw std::logic_error("student_quantile: expected 0 < p < 1 and ν > 0");
  if (p < 0.5) return -student_quantile(1 - p, degrees);
  double low = 0, high = 1;
  while (student_cdf(high, degrees) < p && high < 1e300) low = high, high *= 2;
  for (int i = 0; i < 200 && high - low > 1e-15 * high; ++i) {
    const double middle = (low + high) / 2;
    (student_cdf(middle, degrees) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

Estimate mean_with_interval(std::span<const double> values, double confidence) {
  if (values.empty()) throw std::logic_error("mean_with_interval: expected at least one value");
  const auto n = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  Estimate estimate{.mean = sum / n, .interval = std::nullopt};
  if (values.size() < kLeastSeeds || !std::isfinite(estimate.mean)) return estimate;
  for (const double value : values) squares += (value - estimate.mean) * (value - estimate.mean);
  const double half = student_quantile((1 + confidence) / 2, n - 1) * std::sqrt(squares / (n - 1) / n);
  estimate.interval = Interval{estimate.mean - half, estimate.mean + half};
  return estimate;
}

std::optional<Sweep> analyze_sweep(std::vector<SweepPoint> points, double tolerance) {
  std::sort(points.begin(), points.end(), [](const auto& a, const auto& b) { return a.lr < b.lr; });
  const auto least =
      std::min_element(points.begin(), points.end(), [](const auto& a, const auto& b) { return a.loss < b.loss; });
  if (least == points.end() || !std::isfinite(least->loss)) return std::nullopt;
  const auto best = static_cast<size_t>(least - points.begin());
  Sweep sweep;
  sweep.best = *least;
  if (points.size() > 1 && best == 0) sweep.edge = Edge::Low;
  if (points.size() > 1 && best == points.size() - 1) sweep.edge = Edge::High;
  const double limit = least->loss + tolerance;
  const auto low = range_end(points, best, -1, limit), high = range_end(points, best, 1, limit);
  sweep.low = low.lr, sweep.low_open = low.open;
  sweep.high = high.lr, sweep.high_open = high.open;
  return sweep;
}

std::optional<double> first_crossing(std::span<const double> x, std::span<const double> loss, double target) {
  for (size_t i = 0; i < loss.size(); ++i) {
    if (!(loss[i] <= target)) continue;
    if (i == 0 || !std::isfinite(loss[i - 1])) return x[i];
    return x[i - 1] + (x[i] - x[i - 1]) * (loss[i - 1] - target) / (loss[i - 1] - loss[i]);
  }
  return std::nullopt;
}

}  // namespace prism::compare
