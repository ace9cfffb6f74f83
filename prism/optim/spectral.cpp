#include "prism/optim/spectral.h"

#include <ATen/ops/lerp.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/pow.h>

#include <algorithm>
#include <cmath>

#include "prism/linalg/gram.h"
#include "prism/linalg/scratch.h"
#include "prism/optim/kernel_rule.h"

namespace prism {

double scale_factor(ScaleRule rule, at::IntArrayRef shape) {
  const auto m = static_cast<double>(shape[shape.size() - 2]);
  const auto n = static_cast<double>(shape[shape.size() - 1]);
  switch (rule) {
    case ScaleRule::Moonlight:
      return 0.2 * std::sqrt(std::max(m, n));
    case ScaleRule::Spectral:
      return std::sqrt(std::max(1.0, n > 0 ? m / n : 1.0));
    case ScaleRule::None:
      break;
  }
  return 1;
}

MomentumState momentum_state(const State& state) { return {state["momentum"], state["step"], state["row_moment"]}; }

std::vector<Field> momentum_fields(at::IntArrayRef shape, const Momentum& momentum, bool counts_steps) {
  std::vector<Field> list = {{.name = "momentum", .shape = shape.vec(), .in_operands = true}};
  if (counts_steps) list.push_back({.name = "step", .shape = {}, .storage = Storage::Counter, .in_operands = true});
  if (momentum.normalize == Normalize::Rows)
    list.push_back({"row_moment", with_matrix_shape(shape, shape[shape.size() - 2], 1), Storage::Compute});
  return list;
}

Signal signal(const Tensor& G, const MomentumState& state, const Momentum& momentum) {
  Tensor M = state.M;
  if (momentum.bias_correction) {
    const Tensor correction = 1 - at::pow(momentum.beta, state.step.to(at::kDouble));
    M = M / per_entry(correction, M).to(M.scalar_type());
  }
  if (!momentum.nesterov) return {M, M};
  Tensor T = scratch(G.sizes(), G.options());
  return {at::lerp_out(T, G, M, momentum.beta), M};  // (1−β)G + βM
}

Signal advance(const Tensor& G, MomentumState& state, const Momentum& momentum) {
  state.M.lerp_(G, 1 - momentum.beta);  // M ← βM + (1−β)G
  if (state.step.defined()) state.step.add_(1);
  return signal(G, state, momentum);
}

Tensor finished(Tensor O, MomentumState& state, const Momentum& momentum) {
  if (O.numel() == 0) return O;
  const auto norm = [](const Tensor& X) { return at::linalg_vector_norm(X, 2, {-2, -1}, /*keepdim=*/true); };
  if (momentum.normalize == Normalize::Rows) {
    Tensor& v = state.row_moment;
    v.lerp_(O.square().mean(-1, /*keepdim=*/true), 1 - momentum.row_beta);  // v ← β₂v + (1−β₂)·mean of O²
    const Tensor X = O / nonzero_or_one(v).sqrt();
    O = X * (norm(O) / nonzero_or_one(norm(X)));
  }
  if (momentum.fixed_norm) {
    const auto rank = static_cast<double>(std::min(O.size(-2), O.size(-1)));
    O = O * (std::sqrt(rank) / nonzero_or_one(norm(O)));  // ‖UVᵀ‖_F = √rank; zero stays zero
  }
  return O.mul_(scale_factor(momentum.scale, O.sizes()));
}

std::unique_ptr<KernelRule> momentum_kernel(const Momentum& momentum, const PolarOptions& polar) {
  if (polar.solver != Solver::Gram) return nullptr;
  cuda::SpectralRule rule{.momentum = momentum.beta,
                          .nesterov = momentum.nesterov,
                          .bias_correction = momentum.bias_correction,
                          .bound = polar.coefficients.bound(),
                          .by_norm = polar.coefficients.norm() == Norm::Schatten4,
                          .normalizes_rows = momentum.normalize == Normalize::Rows,
                          .row_beta = momentum.row_beta,
                          .fixed_norm = momentum.fixed_norm};
  for (const auto& step : gram_steps(polar.coefficients)) {
    if (step.c.size() != 3 && step.c.size() != 5) return nullptr;
    rule.steps.push_back({step.c, step.centered, step.split});
  }
  return std::make_unique<KernelRule>(SpectralKernel{.rule = std::move(rule), .scale = momentum.scale});
}

}  // namespace prism
