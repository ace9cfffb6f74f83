#pragma once

// Errors of the low-precision forms on hard spectra, each against the same polynomial in float64: shared by the test by
// ratio and by the program that prints docs/accuracy.md.

#include "prism/linalg/shaping.h"
#include "tests/linalg/matrices.h"

namespace prism::test {

struct Errors {
  double stacked_bf16;   // the literal iteration on [T; γD], all in bfloat16
  double stacked_float;  // the same in float32
  double gram_float;
  double gram_split;
  double gram_half;  // all products on plain fp16 operands, for contrast
  double gram_bf16;  // the same in bfloat16
};

// The first steps in which each product splits its left operand in two, x = h + l/2048.
struct SplitSteps {
  size_t R2 = 0;
  size_t QZ = 0;
  size_t RZ = 0;
  size_t ZRZ = 0;
};

// The Gram iteration on operands of 16 bits with float32 accumulation, spelled out: Z rounded once, then Q ← QZ, R ←
// (RZ)ᵀZ.
inline Tensor emulated_gram(const Tensor& T, const Tensor& N, const Coefficients& set, at::ScalarType type,
                            SplitSteps steps = {}) {
  const auto rounded = [&](const Tensor& X) { return X.to(type).to(at::kFloat); };
  const auto product = [&](const Tensor& A, const Tensor& B, bool split) {
    const Tensor high = rounded(A);
    const Tensor P = high.matmul(rounded(B));
    return split ? P + rounded((A - high) * 2048).matmul(rounded(B)) / 2048 : P;
  };
  Tensor R = T.mT().matmul(T) + N.mT().matmul(N);
  const Tensor size = gram_size(R, set);
  R = R / size;
  const Tensor I = at::eye(T.size(1));
  Tensor Q = I;
  for (size_t k = 0; k < set.polynomials().size(); ++k) {
    const auto& c = set.polynomials()[k];
    Tensor power = R;
    Tensor Z = I * c[0] + R * c[1];
    for (size_t i = 2; i < c.size(); ++i) {
      power = product(power, R, k < steps.R2);
      Z = Z + power * c[i];
    }
    Z = rounded(Z);
    Q = k == 0 ? Z : product(Q, Z, k < steps.QZ);
    R = product(product(R, Z, k < steps.RZ).mT(), Z, k < steps.ZRZ);
    R = (R + R.mT()) / 2;
  }
  return T.matmul(Q) / size.sqrt();
}

inline Errors errors_of(const Tensor& T, const Tensor& D, double gamma, const Coefficients& set) {
  ShapingOptions options{
      .gamma = gamma, .side = Side::Right, .polar = {.solver = Solver::Stacked, .coefficients = set}};
  const Tensor expected = shape_momentum(T, D, options);
  const auto error = [&](at::ScalarType type) {
    return relative_error(shape_momentum(T.to(type), D.to(type), options), expected);
  };
  Errors errors{};
  errors.stacked_bf16 = error(at::kBFloat16);
  errors.stacked_float = error(at::kFloat);
  options.polar.solver = Solver::Gram;
  errors.gram_float = error(at::kFloat);
  options.polar.precision = Precision::Split;
  errors.gram_split = error(at::kFloat);
  const Tensor scale = T.abs().max();
  const Tensor X = (T / scale).to(at::kFloat);
  const Tensor N = (D * gamma / scale).to(at::kFloat);
  errors.gram_half = relative_error(emulated_gram(X, N, set, at::kHalf), expected);
  errors.gram_bf16 = relative_error(emulated_gram(X, N, set, at::kBFloat16), expected);
  return errors;
}

// Noise of the same norm as the signal.
inline Tensor noise_for(const Tensor& T) {
  const Tensor D = random(T.sizes(), 99);
  return D * (T.norm() / D.norm());
}

}  // namespace prism::test
