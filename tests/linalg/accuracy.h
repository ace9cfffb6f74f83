#pragma once

// Errors of the low-precision forms on hard spectra, each against the same polynomial in float64. Shared by
// accuracy_test.cpp and by the program that prints docs/accuracy.md.

#include "prism/cuda/iteration.h"
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

// Products on operands of 16 bits with float32 accumulation, as in tensor cores. 2¹¹ makes the remainder after fp16's
// 11-bit significand normal again.
struct LowProducts {
  at::ScalarType type;

  Tensor rounded(const Tensor& X) const { return X.to(type).to(at::kFloat); }
  Tensor operator()(const Tensor& A, const Tensor& B, bool split = false) const {
    const Tensor high = rounded(A);
    const Tensor P = high.matmul(rounded(B));
    return split ? P + rounded((A - high) * 2048).matmul(rounded(B)) / 2048 : P;
  }
};

inline Tensor gram_of(const Tensor& T, const Tensor& N) { return T.mT().matmul(T) + N.mT().matmul(N); }

// The Gram iteration on such operands, spelled out: Z rounded once, then Q ← QZ, R ← (RZ)ᵀZ.
inline Tensor emulated_gram(const Tensor& T, const Tensor& N, const Coefficients& set, at::ScalarType type,
                            SplitSteps steps = {}) {
  const LowProducts product{type};
  Tensor R = gram_of(T, N);
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
    Z = product.rounded(Z);
    Q = k == 0 ? Z : product(Q, Z, k < steps.QZ);
    R = product(product(R, Z, k < steps.RZ).mT(), Z, k < steps.ZRZ);
    R = (R + R.mT()) / 2;
  }
  return T.matmul(Q) / size.sqrt();
}

// The Gram iteration as prism/cuda runs it on fp16 operands, with R and Q kept in float32. Three coefficients give
// Z = c₀ + c₁A + c₂A². Five complete the square and use the rounded A in the linear terms too: the exact A would not
// match the rounded one in the products. Z is rounded once, so that R stays QᵀR₀Q to float32 accuracy and the later
// steps correct the rounding. The products that carry R split as gram_steps says.
inline Tensor split_gram(const Tensor& T, const Tensor& N, const Coefficients& set) {
  const LowProducts product{at::kHalf};
  Tensor R = gram_of(T, N);
  const Tensor size = gram_size(R, set);
  R = R / size;
  const Tensor I = at::eye(T.size(1));
  Tensor Q;
  const auto steps = gram_steps(set);
  for (size_t k = 0; k < steps.size(); ++k) {
    const auto& [c, centered, split] = steps[k];
    const Tensor A = centered ? R - I : R;
    Tensor Z;
    if (c.size() == 5) {
      const auto [p, q, rho1, rho0] = cuda::CompletedSquare(c);
      const Tensor low = product.rounded(A), S = product(low, low) + low * p + I * q;
      Z = product(S, S) * c[4] + low * rho1 + I * rho0;
    } else {
      Z = I * c[0] + A * c[1];
      if (c.size() > 2) Z = Z + product(A, A) * c[2];
    }
    Z = product.rounded(Z);
    Q = k == 0 ? Z : product(Q, Z);
    R = product(product(R, Z, split).mT(), Z, split);
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
  const Tensor scale = T.abs().max();
  const Tensor X = (T / scale).to(at::kFloat);
  const Tensor N = (D * gamma / scale).to(at::kFloat);
  errors.gram_split = relative_error(split_gram(X, N, set), expected);
  errors.gram_half = relative_error(emulated_gram(X, N, set, at::kHalf), expected);
  errors.gram_bf16 = relative_error(emulated_gram(X, N, set, at::kBFloat16), expected);
  return errors;
}

// Returns noise of the same norm as the signal.
inline Tensor noise_for(const Tensor& T) {
  const Tensor D = random(T.sizes(), 99);
  return D * (T.norm() / D.norm());
}

}  // namespace prism::test
