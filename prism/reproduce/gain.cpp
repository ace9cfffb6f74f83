#include "prism/reproduce/gain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "prism/optim/option_types.h"
#include "prism/reproduce/result.h"

namespace prism::reproduce {
namespace {

using nlohmann::json;

constexpr std::array<double, 5> kQuantiles = {0.05, 0.25, 0.5, 0.75, 0.95};

std::vector<double> numbers(const json& list) {
  std::vector<double> values;
  for (const auto& value : list) values.push_back(value.is_number() ? value.get<double>() : NAN);
  return values;
}

json quantiles(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  std::sort(values.begin(), values.end());
  json list = json::array();
  for (const double q : kQuantiles) {
    if (values.empty()) {
      list.push_back(nullptr);
      continue;
    }
    const double place = q * static_cast<double>(values.size() - 1);
    const auto below = static_cast<size_t>(place);
    const auto above = std::min(below + 1, values.size() - 1);
    list.push_back(rounded(std::lerp(values[below], values[above], place - std::floor(place))));
  }
  return list;
}

// R² = 1 − Σ(y − f)²/Σ(y − ȳ)² of predictions f, summed up point by point.
class Fit {
 public:
  void add(double y, double f) {
    if (!std::isfinite(y) || !std::isfinite(f)) return;
    ++count_;
    sum_ += y;
    squares_ += y * y;
    errors_ += (y - f) * (y - f);
  }
  json r2() const {
    const double spread = squares_ - sum_ * sum_ / static_cast<double>(std::max<int64_t>(count_, 1));
    return spread > 0 ? json(1 - errors_ / spread) : json();
  }
  int64_t count() const { return count_; }

 private:
  int64_t count_ = 0;
  double sum_ = 0, squares_ = 0, errors_ = 0;
};

double norm_of(const std::vector<double>& sigma, Norm norm) {
  const int power = norm == Norm::Frobenius ? 2 : 4;
  double sum = 0;
  for (const double s : sigma) sum += std::pow(s, power);
  return std::pow(sum, 1.0 / power);
}

template <typename T>
std::vector<T> spread(const std::vector<T>& all, size_t count) {  // evenly, both ends among them
  std::vector<T> chosen;
  for (size_t i = 0; i < std::min(all.size(), count); ++i)
    chosen.push_back(all[all.size() <= count ? i : i * (all.size() - 1) / (count - 1)]);
  return chosen;
}

}  // namespace

Coefficients coefficients_of(const json& settings) {
  return OptionType<Coefficients>::read(settings.at("optimizer.coefficients"))
      .with_steps(settings.value("optimizer.steps", int64_t{0}));
}

json spectra_summary(const std::vector<json>& lines, const json& settings) {
  if (lines.empty()) return nullptr;
  const auto p = coefficients_of(settings);
  const bool exact = settings.value("optimizer.solver", "gram") == "exact";
  std::map<int64_t, std::vector<double>> snr;
  Fit law, polynomial;
  for (const auto& line : lines) {
    const auto gain = numbers(line.at("gain")), theory = numbers(line.at("theory")), values = numbers(line.at("snr")),
               sigma = numbers(line.at("augmented"));
    auto& all = snr[line.at("step")];
    all.insert(all.end(), values.begin(), values.end());
    const double size = norm_of(sigma, p.norm());
    for (size_t k = 0; k < gain.size(); ++k) {
      law.add(gain[k], theory[k]);
      polynomial.add(gain[k], exact ? theory[k] : theory[k] * p(sigma[k] / size));
    }
  }
  json summary = {{"r2_theory", law.r2()}, {"r2", polynomial.r2()}, {"directions", law.count()}};
  for (const auto& [step, values] : snr) {
    summary["steps"].push_back(step);
    summary["snr"].push_back(quantiles(values));
  }
  return summary;
}

json few_spectra(const json& records) {
  std::set<int64_t> steps;
  std::set<std::string> matrices;
  for (const auto& record : records) {
    steps.insert(record.at("step").get<int64_t>());
    matrices.insert(record.at("matrix").get<std::string>());
  }
  const auto kept_steps = spread(std::vector(steps.begin(), steps.end()), 3);
  const auto kept = spread(std::vector(matrices.begin(), matrices.end()), 4);
  json few = json::array();
  for (const auto& record : records) {
    if (std::find(kept_steps.begin(), kept_steps.end(), record.at("step").get<int64_t>()) == kept_steps.end() ||
        std::find(kept.begin(), kept.end(), record.at("matrix").get<std::string>()) == kept.end())
      continue;
    json one = {{"step", record.at("step")}, {"matrix", record.at("matrix")}};
    if (record.contains("gamma")) one["gamma"] = record.at("gamma");
    for (const char* key : {"snr", "gain", "theory"}) one[key] = spread(record.at(key).get<std::vector<json>>(), 24);
    few.push_back(std::move(one));
  }
  return few;
}

}  // namespace prism::reproduce
