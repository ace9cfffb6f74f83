#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "prism/linalg/coefficients.h"

namespace prism::reproduce {

// The polynomials of a run's iteration, from its settings.
Coefficients coefficients_of(const nlohmann::json& settings);

// What a pool keeps of the lines of spectra.jsonl; null where there are none.
//   steps        the recorded steps
//   snr          for each of them the quantiles 5, 25, 50, 75 and 95 % of the SNR over all directions of all matrices
//   directions   how many directions the fits below have
//   r2_theory    R² of the measured gains against the law (1 + γ²/SNR²)^(−1/2)
//   r2           the same against the law times the iteration's polynomial, law · p(√λ/norm of all √λ), which is the
//                gain in exact arithmetic; for the exact solver it is the law itself
nlohmann::json spectra_summary(const std::vector<nlohmann::json>& lines, const nlohmann::json& settings);

// A few of a page's records of spectra: at most three steps, four matrices and 24 directions each.
nlohmann::json few_spectra(const nlohmann::json& records);

}  // namespace prism::reproduce
