#include "prism/report/thin.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace prism::report {
namespace {

// Returns at most `count` evenly spread indices of 0 … size − 1, including both ends.
std::vector<size_t> spread(size_t size, size_t count) {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < std::min(size, count); ++i) {
    chosen.push_back(size <= count ? i : (i * (size - 1) + (count - 1) / 2) / (count - 1));
  }
  return chosen;
}

template <class... Lists>
void pick(const std::vector<size_t>& indices, Lists&... lists) {
  const auto pick_one = [&](auto& list) {
    if (list.empty()) return;
    for (size_t i = 0; i < indices.size(); ++i) list[i] = list[indices[i]];
    list.resize(indices.size());
  };
  (pick_one(lists), ...);
}

template <class... Lists>
void round_numbers(Lists&... lists) {
  const auto round_one = [](std::vector<double>& list) {
    for (double& number : list) {
      if (std::isfinite(number)) number = std::stod(fmt::format("{:.6g}", number));
    }
  };
  (round_one(lists), ...);
}

double finite_or_unknown(double value) { return std::isfinite(value) ? value : kUnknown; }

// Merges the points into groups: the mean of `loss` and the extremes of `low` and `high`. Points of single steps have
// neither, so `loss` takes their place.
void thin_losses(LossCurve& curve, size_t most_points) {
  const auto& lows = curve.low.empty() ? curve.loss : curve.low;
  const auto& highs = curve.high.empty() ? curve.loss : curve.high;
  std::vector<size_t> middles;
  std::vector<double> mean, low, high;
  for (size_t group = 0; group < most_points; ++group) {
    const size_t begin = group * curve.loss.size() / most_points;
    const size_t end = (group + 1) * curve.loss.size() / most_points;
    double sum = 0, least = kUnknown, most = kUnknown;
    int64_t count = 0;
    for (size_t i = begin; i < end; ++i) {
      const bool finite = std::isfinite(curve.loss[i]);
      sum += finite ? curve.loss[i] : 0;
      count += finite ? 1 : 0;
      least = std::fmin(least, finite_or_unknown(lows[i]));
      most = std::fmax(most, finite_or_unknown(highs[i]));
    }
    middles.push_back((begin + end - 1) / 2);
    mean.push_back(count > 0 ? sum / static_cast<double>(count) : kUnknown);
    low.push_back(least);
    high.push_back(most);
  }
  pick(middles, curve.step, curve.tokens, curve.seconds);
  curve.loss = std::move(mean), curve.low = std::move(low), curve.high = std::move(high);
}

// Keeps the records whose `key` is one of `most` evenly spread values.
template <class Key>
void thin_records(std::vector<Spectrum>& records, Key Spectrum::*key, size_t most) {
  std::set<Key> keys;
  for (const auto& record : records) keys.insert(record.*key);
  std::vector<Key> kept(keys.begin(), keys.end());
  pick(spread(kept.size(), most), kept);
  std::erase_if(records, [&](const auto& record) { return !std::ranges::binary_search(kept, record.*key); });
}

void thin_spectra(std::vector<Spectrum>& records, const Limits& limits) {
  thin_records(records, &Spectrum::step, limits.steps);
  thin_records(records, &Spectrum::matrix, limits.matrices);
  for (auto& record : records) {
    for (auto* list :
         {&record.snr, &record.gain, &record.theory, &record.singular_values, &record.weight_singular_values}) {
      pick(spread(list->size(), limits.directions), *list);
      round_numbers(*list);
    }
  }
}

}  // namespace

void thin_run(PageRun& run, const Limits& limits) {
  auto &train = run.train, &val = run.val;
  if (train.step.size() > limits.points) thin_losses(train, limits.points);
  pick(spread(val.step.size(), limits.points), val.step, val.tokens, val.seconds, val.loss, val.low, val.high);
  pick(spread(run.norms.step.size(), limits.points), run.norms.step, run.norms.weight);
  round_numbers(train.seconds, train.loss, train.low, train.high, val.seconds, val.loss, run.norms.weight);
  thin_spectra(run.spectra, limits);
}

}  // namespace prism::report
