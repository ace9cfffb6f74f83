#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "prism/linalg/coefficients.h"
#include "prism/report/page.h"
#include "prism/train/run_data.h"

namespace prism::reproduce {

// Returns the polynomials of a run's iteration, from its settings.
Coefficients coefficients_of(const nlohmann::json& settings);

// The summary of a run's spectra that the pool keeps; empty if the run recorded none.
struct SpectraSummary {
  std::vector<int64_t> steps = {};            // at which spectra were recorded
  std::vector<std::vector<double>> snr = {};  // at each step, quantiles 5, 25, 50, 75, 95 % over all directions
  int64_t directions = 0;                     // number of directions in the fits below
  double r2_theory = report::kUnknown;        // R² of the measured gains against the law (1 + γ²/SNR²)^(−1/2)

  // R² against law · p(√λ / norm of all √λ), the gain in exact arithmetic, with the iteration's polynomial p. For the
  // exact solver the same as r2_theory.
  double r2 = report::kUnknown;

  bool empty() const { return steps.empty(); }
};
SpectraSummary spectra_summary(const std::vector<train::SpectraLine>& lines, const nlohmann::json& settings);

}  // namespace prism::reproduce
