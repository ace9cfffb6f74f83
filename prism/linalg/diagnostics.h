#pragma once

#include "prism/linalg/shaping.h"

namespace prism {

// The effect of an update, per matrix and per direction. The directions v_k are the eigenvectors of the augmented Gram
// matrix TᵀT + γ²DᵀD (right side; TTᵀ + γ²DDᵀ on the left), largest eigenvalue first: min(2m, n) of them, min(m, 2n) on
// the left.
struct Spectrum {
  Tensor singular_values;  // (…, min(m, n)) of T
  Tensor snr;              // (…, k): ‖Tv‖/‖Dv‖, without γ; ∞ where D vanishes, 0 where T does
  Tensor gain;             // (…, k): ‖Ov‖, measured
  Tensor theory;           // (…, k): (1 + γ²/SNR²)^(−1/2), the gain of the exact solver
  Tensor augmented;  // (…, k): √λ of the eigenvalues; an iteration's gain is theory · p(√λ / norm of all √λ)
};

// Computes the spectrum in float64. O is the update of T by D, before learning rate and scale rule. Side `both` has no
// such law and is refused.
Spectrum spectrum(const Tensor& T, const Tensor& D, const Tensor& O, double gamma, Side side = Side::Short);

// The same for an averaged covariance Ĉ of that side in place of DᵀD: ‖Dv‖ is √(vᵀĈv), over all n eigenvectors of
// TᵀT + γ²Ĉ.
Spectrum spectrum(const Tensor& T, const Covariance& covariance, const Tensor& O, double gamma,
                  Side side = Side::Short);

}  // namespace prism
