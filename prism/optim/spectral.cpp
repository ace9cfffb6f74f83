#include "prism/optim/spectral.h"

#include <ATen/ops/lerp.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/pow.h>

#include <algorithm>
#include <cmath>

#include "prism/optim/option_types.h"

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

void SpectralOptions::check() const {
  MatrixOptions::check();
  TORCH_CHECK_VALUE(steps() >= 0, name(), ": steps must be 1 or more (0 for the length of the coefficient set), got ",
                    steps());
  if (solver() == Solver::Exact) check_no_iteration("solver 'exact' runs no iteration");
}

void SpectralOptions::check_no_iteration(const std::string& why) const {
  TORCH_CHECK_VALUE(steps() == 0 && coefficients() == default_coefficients_, name(), ": ", why,
                    "; leave out coefficients and steps");
}

std::vector<Option> SpectralOptions::table() {
  return MatrixOptions::table() +
         std::vector<Option>{
             option("solver", solver_,
                    "gram: Newton-Schulz on the Gram matrix; stacked: on the matrix itself; exact: float64 SVD"),
             option("coefficients", coefficients_,
                    "jordan, you, polar_express, minimax9, converged, or one list of numbers per step"),
             option("steps", steps_, "Newton-Schulz steps; 0 is the length of the set, more repeats the last"),
         };
}

PolarOptions SpectralOptions::polar() const {
  return {.solver = solver(), .coefficients = coefficients().with_steps(steps()), .precision = Precision::Full};
}

void MomentumOptions::check() const {
  SpectralOptions::check();
  TORCH_CHECK_VALUE(momentum() >= 0 && momentum() < 1, name(), ": momentum must be from 0 to below 1, got ",
                    momentum());
  TORCH_CHECK_VALUE(row_beta() >= 0 && row_beta() < 1, name(), ": row_beta must be from 0 to below 1, got ",
                    row_beta());
  TORCH_CHECK_VALUE(normalize() == Normalize::Rows || row_beta() == kDefaultRowBeta, name(),
                    ": row_beta needs normalize 'rows', got '", word(normalize()), "'; leave row_beta out");
}

std::vector<Option> MomentumOptions::table() {
  return SpectralOptions::table() +
         std::vector<Option>{
             option("momentum", momentum_, "β of the momentum M ← βM + (1−β)G"),
             option("nesterov", nesterov_, "shape (1−β)G + βM instead of M"),
             option("bias_correction", bias_correction_, "divide M by 1 − βᵗ, so that the first steps are not damped"),
             option("scale", scale_, "moonlight: 0.2·√max(m, n); spectral: √max(1, m/n); none: 1"),
             option("normalize", normalize_, "rows: divide each output row by the root mean of its squares over steps"),
             option("row_beta", row_beta_, "β₂ of that mean"),
         };
}

std::vector<Field> MomentumOptions::fields(at::IntArrayRef shape) const {
  std::vector<Field> list = {{"momentum", shape.vec()}};
  if (counts_steps()) list.push_back({"step", {}, Storage::Counter});
  if (normalize() == Normalize::Rows)
    list.push_back({"row_moment", with_matrix_shape(shape, shape[shape.size() - 2], 1), Storage::Compute});
  return list;
}

MomentumState momentum_state(const State& state) { return {state["momentum"], state["step"], state["row_moment"]}; }

Signal signal(const Tensor& G, const MomentumState& state, const MomentumOptions& options) {
  const double beta = options.momentum();
  Tensor M = state.M;
  if (options.bias_correction()) {
    const Tensor correction = 1 - at::pow(beta, state.step.to(at::kDouble));
    M = M / per_entry(correction, M).to(M.scalar_type());
  }
  return {options.nesterov() ? at::lerp(G, M, beta) : M, M};  // (1−β)G + βM
}

Signal advance(const Tensor& G, MomentumState& state, const MomentumOptions& options) {
  state.M.lerp_(G, 1 - options.momentum());  // M ← βM + (1−β)G
  if (state.step.defined()) state.step.add_(1);
  return signal(G, state, options);
}

Tensor finished(Tensor O, MomentumState& state, const MomentumOptions& options) {
  if (options.normalize() == Normalize::Rows && O.numel() > 0) {
    const auto norm = [](const Tensor& X) { return at::linalg_vector_norm(X, 2, {-2, -1}, /*keepdim=*/true); };
    Tensor& v = state.row_moment;
    v.lerp_(O.square().mean(-1, /*keepdim=*/true), 1 - options.row_beta());  // v ← β₂v + (1−β₂)·mean of O²
    const Tensor X = O / nonzero_or_one(v).sqrt();
    O = X * (norm(O) / nonzero_or_one(norm(X)));
  }
  return O.mul_(scale_factor(options.scale(), O.sizes()));
}

}  // namespace prism
