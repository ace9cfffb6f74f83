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
  const double value = number.is_number() ? number.get<double>() : std::numeric_limits<double>::quiet_NaN();
  return std::isfinite(value) ? value : std::numeric_limits<double>::quiet_NaN();
}

void thin_losses(json& curve) {
  const auto losses = curve.at("loss");
  const size_t size = losses.size();
  json mean = json::array();
  json low = json::array();
  json high = json::array();
  std::vector<size_t> middles;
  for (size_t group = 0; group < kMostPoints; ++group) {
    const size_t begin = group * size / kMostPoints;
    const size_t end = (group + 1) * size / kMostPoints;
    double sum = 0;
    double least = std::numeric_limits<double>::infinity();
    double most = -least;
    int64_t count = 0;
    for (size_t i = begin; i < end; ++i) {
      const double loss = finite_or_nan(losses[i]);
      if (std::isnan(loss)) continue;
      sum += loss;
      least = std::min(least, loss);
      most = std::max(most, loss);
      ++count;
    }
    middles.push_back((begin + end - 1) / 2);
    mean.push_back(count > 0 ? json(sum / static_cast<double>(count)) : json());
    low.push_back(count > 0 ? json(least) : json());
    high.push_back(count > 0 ? json(most) : json());
  }
  for (auto& [key, list] : curve.items()) list = picked(list, middles);
  curve["loss"] = std::move(mean);
  curve["low"] = std::move(low);
  curve["high"] = std::move(high);
}

void thin_by_picking(json& curve) {
  const auto chosen = spread(curve.at("step").size(), kMostPoints);
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

void thin_document(json& document) {
  for (auto& run : document.at("runs")) {
    if (run.contains("train") && run["train"].at("step").size() > kMostPoints) thin_losses(run["train"]);
    for (const auto* key : {"val", "norms"}) {
      if (run.contains(key)) thin_by_picking(run[key]);
    }
    for (const auto* key : {"train", "val", "norms"}) {
      if (!run.contains(key)) continue;
      for (auto& [ignored, list] : run[key].items()) round_numbers(list);
    }
    if (run.contains("spectra")) thin_spectra(run["spectra"]);
  }
}

}  // namespace prism::report
