#include "prism/report/thin.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace prism::report {

namespace {

using nlohmann::json;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// `count` of 0 … size−1, evenly spread, both ends among them.
std::vector<size_t> spread(size_t size, size_t count) {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < std::min(size, count); ++i) {
    chosen.push_back(size <= count ? i : (i * (size - 1) + (count - 1) / 2) / (count - 1));
  }
  return chosen;
}

json picked(const json& list, const std::vector<size_t>& indices) {
  json result = json::array();
  for (const size_t i : indices) result.push_back(list[i]);
  return result;
}

void round_numbers(json& list) {
  for (auto& number : list) {
    if (number.is_number_float()) number = std::stod(fmt::format("{:.6g}", number.get<double>()));
  }
}

double finite_or_nan(const json& number) {
  const double value = number.is_number() ? number.get<double>() : kNan;
  return std::isfinite(value) ? value : kNan;
}

json numbers(const std::vector<double>& values) {  // null for NaN
  json list = json::array();
  for (const double value : values) list.push_back(std::isnan(value) ? json() : json(value));
  return list;
}

// Mean of `loss` and extremes of `low` and `high`, which are `loss` itself where points were single steps.
void thin_losses(json& curve, size_t most_points) {
  const json losses = curve.at("loss");
  const json lows = curve.value("low", losses);
  const json highs = curve.value("high", losses);
  std::vector<size_t> middles;
  std::vector<double> mean;
  std::vector<double> low;
  std::vector<double> high;
  for (size_t group = 0; group < most_points; ++group) {
    const size_t begin = group * losses.size() / most_points;
    const size_t end = (group + 1) * losses.size() / most_points;
    double sum = 0;
    double least = kNan;
    double most = kNan;
    int64_t count = 0;
    for (size_t i = begin; i < end; ++i) {
      const double loss = finite_or_nan(losses[i]);
      sum += std::isnan(loss) ? 0 : loss;
      count += std::isnan(loss) ? 0 : 1;
      least = std::fmin(least, finite_or_nan(lows[i]));
      most = std::fmax(most, finite_or_nan(highs[i]));
    }
    middles.push_back((begin + end - 1) / 2);
    mean.push_back(count > 0 ? sum / static_cast<double>(count) : kNan);
    low.push_back(least);
    high.push_back(most);
  }
  for (auto& [key, list] : curve.items()) list = picked(list, middles);
  curve["loss"] = numbers(mean);
  curve["low"] = numbers(low);
  curve["high"] = numbers(high);
}

void thin_by_picking(json& curve, size_t most_points) {
  const auto chosen = spread(curve.at("step").size(), most_points);
  for (auto& [key, list] : curve.items()) list = picked(list, chosen);
}

void thin_spectra(json& records) {
  std::set<int64_t> steps;
  for (const auto& record : records) steps.insert(record.at("step").get<int64_t>());
  const std::vector<int64_t> ascending(steps.begin(), steps.end());
  std::set<int64_t> kept;
  for (const size_t i : spread(ascending.size(), kMostSteps)) kept.insert(ascending[i]);
  json result = json::array();
  for (auto& record : records) {
    if (!kept.contains(record.at("step").get<int64_t>())) continue;
    for (auto& [key, list] : record.items()) {
      if (!list.is_array()) continue;
      list = picked(list, spread(list.size(), kMostDirections));
      round_numbers(list);
    }
    result.push_back(std::move(record));
  }
  records = std::move(result);
}

}  // namespace

void thin_run(json& run, size_t most_points) {
  if (run.contains("train") && run["train"].at("step").size() > most_points) thin_losses(run["train"], most_points);
  for (const auto* key : {"val", "norms"}) {
    if (run.contains(key)) thin_by_picking(run[key], most_points);
  }
  for (const auto* key : {"train", "val", "norms"}) {
    if (!run.contains(key)) continue;
    for (auto& [ignored, list] : run[key].items()) round_numbers(list);
  }
  if (run.contains("spectra")) thin_spectra(run["spectra"]);
}

}  // namespace prism::report
