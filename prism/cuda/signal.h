#pragma once

// Computes the operands of the Gram matrix, and their scales, from gradients and momenta.

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include "prism/cuda/product.h"

namespace prism::cuda {

constexpr int kBlockElements = 8192;  // elements of a matrix that one block reads

// One matrix.
struct SignalMatrix {
  const void* G;
  float* M;
  __half *T, *D;  // operands, rows of `pitch`; D is null if the Gram matrix needs none
  const float* step;
  const float* gamma_factor;
  float *C, *C_scale;
  int m, n, pitch;
  int k;  // of the k×k covariance C
  int first_block;
  float gamma_scale;
};

// The factors of each matrix's operands and products, as arrays over the matrices of a chunk.
struct SignalFactors {
  float *T, *D;                   // operands: powers of two; that of D includes γ
  float *gram_alpha, *gram_beta;  // R = alpha·TᵀT + beta·Ĉ, of trace 1
  float *mean_alpha, *mean_beta;  // Ĉ ← beta·Ĉ + alpha·DᵀD; 0 and 1 between refreshes
  float* update;                  // O = update·TQ
  float* diagonal;                // of whitened matrices: R = alpha·XXᵀ + diagonal·I, of trace 1
};

// Sums over one block's elements.
struct Measure {
  float T_largest, D_largest;
  double T_squares, D_squares;
};

// The settings that all matrices of a step share.
struct SignalSettings {
  float momentum = 0;
  bool nesterov = false, bias_correction = false, noisy = false, averaged = false, maximize = false;
  double covariance_beta = 0, covariance_every = 1, damping = 0;
  Number gamma = {};
  const bool* apply = nullptr;
  const float* grad_scale = nullptr;

  SignalSettings(const SpectralRule& rule, const StepScalars& scalars)
      : momentum(static_cast<float>(rule.momentum)),
        nesterov(rule.nesterov),
        bias_correction(rule.bias_correction),
        noisy(rule.noisy),
        averaged(rule.averaged),
        maximize(scalars.maximize),
        covariance_beta(rule.covariance_beta),
        covariance_every(static_cast<double>(rule.covariance_every)),
        damping(rule.damping),
        gamma(rule.gamma),
        apply(scalars.apply),
        grad_scale(scalars.grad_scale) {}
};

struct SignalLaunch {
  SignalSettings settings;
  SignalMatrix matrices[kMaxMatrices] = {};
  int count = 0, blocks = 0;
  Real gradient = Real::Float32;
  Measure* measures = nullptr;  // one per block
  SignalFactors factors = {};
  int* misjudged = nullptr;                    // of each matrix: not 0 if its operands were written with other factors
  int *counters = nullptr, counter_count = 0;  // set to 0 for the kernels that follow
  // Of parts of matrices: the measures of the whole matrices, kSums numbers of each. Null: `measures` are of all blocks.
  const double* sums = nullptr;
};

// Writes M ← βM + (1−β)G, the operands T and D in fp16, and all factors.
cudaError_t launch_operands(const SignalLaunch& launch, int device, cudaStream_t stream);

// The same for parts of matrices. The first function writes the measures of each part to `sums`, kSums numbers of each.
// From launch.sums, the measures of the whole matrices, the second writes M and the operands of the parts with their
// factors, and the third writes all factors of the whole matrices.
cudaError_t launch_sums(const SignalLaunch& launch, double* sums, cudaStream_t stream);
cudaError_t launch_part_operands(const SignalLaunch& launch, cudaStream_t stream);
cudaError_t launch_factors(const SignalLaunch& launch, cudaStream_t stream);

// Adds 1 to each of `count` step counters.
cudaError_t launch_count(float* const* steps, int count, const bool* apply, cudaStream_t stream);

}  // namespace prism::cuda
