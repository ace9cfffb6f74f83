#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "prism/linalg/coefficients.h"
#include "prism/report/page.h"
#include "prism/train/run_data.h"

namespace prism::reproduce {

// The polynomials of a run's iteration, from its settings.
Coefficients coefficients_of(const nlohmann::json& settings);

// What a pool keeps of a run's spectra; empty where the run recorded none.
struct SpectraSummary {
  std::vector<int64_t> steps = {};            // recorded
  std::vector<std::vector<double>> snr = {};  // at each step the quantiles 5, 25, 50, 75, 95 % over all directions
  int64_t directions = 0;                     // of the fits below
  double r2_theory = report::kUnknown;        // R² of the measured gains against the law (1 + γ²/SNR²)^(−1/2)
  double r2 = report::kUnknown;               // the same against law · p(√λ/norm of all √λ), p the iteration's
                                              // polynomial: the gain in exact arithmetic. Exact solver: the law itself
  bool empty() const { return steps.empty(); }
};
SpectraSummary spectra_summary(const std::vector<train::SpectraLine>& lines, const nlohmann::json& settings);

}  // namespace prism::reproduce
