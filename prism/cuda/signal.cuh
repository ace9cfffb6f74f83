#pragma once

// The momentum, the operands and the averaged covariance of one matrix, as the kernels compute them.

#include "prism/cuda/signal.h"
#include "prism/cuda/weight_update.cuh"

namespace prism::cuda {

// The momentum, the operand T and the innovation D of one element (prism/optim/spectral.h).
struct Signal {
  float M, T, D;
};

struct SignalRule {
  float beta;
  bool nesterov;
  float correction;  // 1/(1 − βᵗ), or 1
  float grad_factor;

  __device__ Signal operator()(float G, float M) const {
    return after(G, fmaf(1 - beta, __fmul_rn(G, grad_factor) - M, M));
  }
  // The same from the momentum after this step. Products are rounded before sums, so that both give the same bits.
  __device__ Signal after(float G, float M) const {
    G = __fmul_rn(G, grad_factor);
    const float predicted = __fmul_rn(M, correction);
    const float D = G - predicted;
    return {M, nesterov ? fmaf(1 - beta, D, predicted) : predicted, D};  // (1−β)G + βM
  }
};

__device__ inline SignalRule read_rule(const SignalSettings& settings, const float* step) {
  SignalRule rule{settings.momentum, settings.nesterov, 1, settings.maximize ? -1.f : 1.f};
  if (settings.bias_correction)
    rule.correction = static_cast<float>(1 / (1 - pow(static_cast<double>(settings.momentum), *step)));
  if (settings.grad_scale != nullptr) rule.grad_factor /= *settings.grad_scale;
  return rule;
}

// γ of a matrix; 0 if the rule has none. `factor` may be null.
__device__ inline double gamma_of(const SignalSettings& settings, float scale, const float* factor) {
  if (!settings.noisy) return 0;
  return read(settings.gamma) * scale * (factor == nullptr ? 1. : *factor);
}

// The power of two of an operand with this largest magnitude, which it brings to 2⁷ … 2¹⁵: elements above 2⁻²¹ of it keep
// fp16's full precision. Its exponent is a multiple of 8, so that a guess of the magnitude mostly gives the same power.
__device__ inline double operand_power(double largest) {
  if (!(largest > 0)) return 1;
  int exponent = 0;
  frexp(largest, &exponent);
  return ldexp(1., max(-120, min(120, (15 - exponent) & ~7)));
}

// The power of two nearest to x > 0 (any for 0), within float32's normal numbers.
__device__ inline double nearest_power(double x) {
  int exponent = 0;
  const double mantissa = frexp(x, &exponent);
  return exp2(static_cast<double>(max(-126, min(126, exponent - (mantissa < 0.70710678118654752)))));
}

// Returns true if the averaged covariance of a matrix is refreshed at this step.
__device__ inline bool is_refreshed(const SignalSettings& settings, double step) {
  return fmod(step - 1, settings.covariance_every) == 0;
}

// The next averaged covariance Ĉ = scale²·C (prism/linalg/sketch.h).
struct Average {
  bool is_due;
  double scale;          // new
  double shrink, added;  // C ← shrink·C + added·DᵀD/scale²
  double correction;     // 1/(1 − β₂ᵗ) for the t steps that Ĉ covers
};

// `C_largest` is the largest entry of the diagonal of C, which is the largest of a positive semidefinite matrix.
__device__ inline Average next_average(const SignalSettings& settings, double step, double old, double C_largest,
                                       double D_largest) {
  const double every = settings.covariance_every, covered = ceil(step / every) * every;
  const double correction = 1 / (1 - pow(settings.covariance_beta, covered));
  if (!is_refreshed(settings, step)) return {false, old, 1, 0, correction};
  const double kept = pow(settings.covariance_beta, every);
  const double content = old * sqrt(C_largest);
  const double scale = nearest_power(fmax(content, D_largest));
  return {true, scale, content > 0 ? kept * (old / scale) * (old / scale) : 0, 1 - kept, correction};
}

}  // namespace prism::cuda
