#include "prism/reproduce/gain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "prism/optim/option_types.h"
#include "prism/reproduce/result.h"

namespace prism::reproduce {
namespace {

using nlohmann::json;

constexpr std::array<double, 5> kQuantiles = {0.05, 0.25, 0.5, 0.75, 0.95};

std::vector<double> quantiles(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return std::vector<double>(kQuantiles.size(), report::kUnknown);
  std::sort(values.begin(), values.end());
  std::vector<double> list;
  for (const double q : kQuantiles) {
    const double place = q * static_cast<double>(values.size() - 1);
    const auto below = static_cast<size_t>(place);
    const auto above = std::min(below + 1, values.size() - 1);
    list.push_back(rounded(std::lerp(values[below], values[above], place - std::floor(place))));
  }
  return list;
}

// Accumulates R² = 1 − Σ(y − f)²/Σ(y − ȳ)² of predictions f, point by point.
class Fit {
 public:
  void add(double y, double f) {
    if (!std::isfinite(y) || !std::isfinite(f)) return;
    ++count_;
    sum_ += y;
    squares_ += y * y;
    errors_ += (y - f) * (y - f);
  }
  double r2() const {
    const double spread = squares_ - sum_ * sum_ / static_cast<double>(std::max<int64_t>(count_, 1));
    return spread > 0 ? 1 - errors_ / spread : report::kUnknown;
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

}  // namespace

Coefficients coefficients_of(const json& settings) {
  return OptionType<Coefficients>::read(settings.at("optimizer.coefficients"))
      .with_steps(settings.value("optimizer.steps", int64_t{0}));
}

SpectraSummary spectra_summary(const std::vector<train::SpectraLine>& lines, const json& settings) {
  SpectraSummary summary;
  if (lines.empty()) return summary;
  const auto p = coefficients_of(settings);
  const bool exact = settings.value("optimizer.solver", "gram") == "exact";
  std::map<int64_t, std::vector<double>> snr;
  Fit law, polynomial;
  for (const auto& line : lines) {
    auto& all = snr[line.step];
    all.insert(all.end(), line.snr.begin(), line.snr.end());
    const double size = norm_of(line.augmented, p.norm());
    for (size_t k = 0; k < line.gain.size(); ++k) {
      law.add(line.gain[k], line.theory.at(k));
      polynomial.add(line.gain[k], line.theory[k] * (exact ? 1 : p(line.augmented.at(k) / size)));
    }
  }
  for (const auto& [step, values] : snr) {
    summary.steps.push_back(step);
    summary.snr.push_back(quantiles(values));
  }
  summary.directions = law.count();
  summary.r2_theory = law.r2();
  summary.r2 = polynomial.r2();
  return summary;
}

}  // namespace prism::reproduce
