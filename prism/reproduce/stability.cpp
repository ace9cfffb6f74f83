#include "prism/reproduce/stability.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "prism/compare/statistics.h"
#include "prism/train/summary.h"

namespace prism::reproduce {
namespace {

constexpr double kRise = 1;  // nats above the minimum that count as divergence

// Returns the first step from which `curve` stays above `limit` to its end.
int64_t last_crossing(const std::vector<double>& curve, double limit) {
  auto step = static_cast<int64_t>(curve.size());
  while (step > 1 && curve[static_cast<size_t>(step - 2)] > limit) --step;
  return step;
}

}  // namespace

std::vector<double> running_loss(std::span<const double> losses) {
  const auto window = std::clamp<size_t>(losses.size() / 10, 1, 100);
  std::vector<double> means;
  for (size_t i = 0; i < losses.size(); ++i) {
    const size_t begin = i + 1 > window ? i + 1 - window : 0;
    double sum = 0;
    for (size_t j = begin; j <= i; ++j) sum += compare::finite_or_infinity(losses[j]);
    means.push_back(sum / static_cast<double>(i + 1 - begin));
  }
  return means;
}

std::optional<Divergence> divergence(std::span<const double> losses, double unigram_entropy, bool stopped) {
  const auto steps = static_cast<int64_t>(losses.size());
  if (stopped) return Divergence{steps, "stopped"};
  if (losses.empty()) return std::nullopt;
  const auto running = running_loss(losses);
  if (running.back() > unigram_entropy)
    return Divergence{last_crossing(running, unigram_entropy), "above unigram entropy"};
  const double least = *std::min_element(running.begin(), running.end());
  if (running.back() > least + kRise) return Divergence{last_crossing(running, least + kRise), "above its minimum"};
  return std::nullopt;
}

std::vector<Spike> spikes(std::span<const double> losses, const SpikeOptions& options) {
  std::vector<Spike> found;
  const auto window = static_cast<size_t>(options.window);
  for (size_t i = window; i < losses.size(); ++i) {
    std::vector<double> before(losses.begin() + static_cast<std::ptrdiff_t>(i - window),
                               losses.begin() + static_cast<std::ptrdiff_t>(i));
    std::transform(before.begin(), before.end(), before.begin(), compare::finite_or_infinity);
    const double middle = train::median(before);
    if (!std::isfinite(middle)) continue;
    for (double& loss : before) loss = std::abs(loss - middle);
    const double threshold = middle + options.k * 1.4826 * train::median(before);
    if (!(compare::finite_or_infinity(losses[i]) > threshold)) continue;
    Spike spike{.step = static_cast<int64_t>(i + 1), .height = 0, .recovery = std::nullopt};
    size_t end = i;
    for (; end < losses.size() && compare::finite_or_infinity(losses[end]) > threshold; ++end)
      spike.height = std::max(spike.height, compare::finite_or_infinity(losses[end]) - middle);
    if (end < losses.size()) spike.recovery = static_cast<int64_t>(end - i);
    found.push_back(spike);
    i = end;
  }
  return found;
}

double detectable_difference(double standard_deviation, int64_t seeds) {
  if (seeds < 2) throw std::logic_error("detectable_difference: expected at least two seeds");
  const auto n = static_cast<double>(seeds);
  const double t = compare::student_quantile(0.975, 2 * (n - 1)) + compare::student_quantile(0.8, 2 * (n - 1));
  return t * standard_deviation * std::sqrt(2 / n);
}

}  // namespace prism::reproduce
