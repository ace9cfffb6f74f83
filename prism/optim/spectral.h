#pragma once

#include "prism/optim/matrix.h"

namespace prism {

double scale_factor(ScaleRule rule, at::IntArrayRef shape);

// Sets have at most 8 steps; a step's time grows with their number.
inline constexpr Range kIterations = {.words = "from 0 (the length of the coefficient set) to 100", .high = 100};

// The options of every rule built on a polar factor: how it is computed.
template <class Self>
class SpectralOptions : public MatrixOptions<Self> {
  PRISM_OPTION(Solver, solver, Solver::Gram, kAny,
               "gram: Newton-Schulz on the Gram matrix; stacked: on the matrix itself; exact: float64 SVD");
  PRISM_OPTION(Coefficients, coefficients, "jordan", kAny,
               (c10::Join(", ", Coefficients::names()) + ", or one list of numbers per step").c_str());
  PRISM_OPTION(int64_t, steps, 0, kIterations, "Newton-Schulz steps; 0: the length of the set, more repeat the last");

 public:
  PolarOptions polar() const { return {.solver = solver(), .coefficients = coefficients().with_steps(steps())}; }
  void check() const override {
    MatrixOptions<Self>::check();
    if (solver() == Solver::Exact) check_no_iteration("solver 'exact' runs no iteration");
  }

 protected:
  SpectralOptions(double lr, double weight_decay, const Coefficients& coefficients = "jordan")
      : MatrixOptions<Self>(lr, weight_decay) {
    coefficients_ = coefficients;
  }

  // Throws if coefficients or steps are set although nothing uses them; `why` says why.
  void check_no_iteration(const std::string& why) const {
    Self defaults, in_mixed;
    in_mixed.use_mixed_defaults();
    const bool usual = coefficients() == defaults.coefficients() || coefficients() == in_mixed.coefficients();
    TORCH_CHECK_VALUE(steps() == 0 && usual, this->name(), ": ", why, "; leave out coefficients and steps");
  }
};

// The settings of a rule that the functions below need: momentum, scale and normalization, as plain values.
struct Momentum {
  double beta = 0.95;
  bool nesterov = true;
  bool bias_correction = false;
  ScaleRule scale = ScaleRule::Moonlight;
  Normalize normalize = Normalize::None;
  double row_beta = 0.95;
  bool fixed_norm = false;
};

struct MomentumState {
  Tensor M;           // (B, …, m, n)
  Tensor step;        // (B); undefined if nothing depends on it
  Tensor row_moment;  // (B, …, m, 1): v of Normalize::Rows, else undefined
};
MomentumState momentum_state(const State& state);
std::vector<Field> momentum_fields(at::IntArrayRef shape, const Momentum& momentum, bool counts_steps);

// The matrix T to shape, and the prediction M that the gradient is compared with (D = G − M).
struct Signal {
  Tensor T, M;
};

// Updates M ← βM + (1−β)G in place, then returns the signal.
Signal advance(const Tensor& G, MomentumState& state, const Momentum& momentum);

// T = M, or (1−β)G + βM with Nesterov. With bias correction, M/(1−βᵗ) replaces M in both.
Signal signal(const Tensor& G, const MomentumState& state, const Momentum& momentum);

// Returns the update scale(m, n)·O. If the rule asks for it, normalizes the rows of O first, which advances the state,
// and sets its norm.
Tensor finished(Tensor O, MomentumState& state, const Momentum& momentum);

// The options of every rule with momentum.
template <class Self>
class MomentumOptions : public SpectralOptions<Self> {
  PRISM_OPTION(double, momentum, 0.95, kFraction, "β of the momentum M ← βM + (1−β)G");
  PRISM_OPTION(bool, nesterov, true, kAny, "shape (1−β)G + βM instead of M");
  PRISM_OPTION(bool, bias_correction, false, kAny, "divide M by 1 − βᵗ, so that the first steps are not damped");
  PRISM_OPTION(ScaleRule, scale, ScaleRule::Moonlight, kAny,
               "moonlight: 0.2·√max(m, n); spectral: √max(1, m/n); none: 1");
  PRISM_OPTION(Normalize, normalize, Normalize::None, kAny,
               "rows: divide each output row by the root of a running mean of its squares");
  PRISM_OPTION(double, row_beta, 0.95, kFraction, "β₂ of that mean");
  PRISM_OPTION(bool, fixed_norm, false, kAny,
               "rescale O to ‖O‖_F = √min(m, n), the norm of an orthogonal update such as Muon's");

 public:
  std::optional<Momentum> momentum_rule() const override { return rule(); }
  std::vector<Field> fields(at::IntArrayRef shape) const override {
    return momentum_fields(shape, rule(), counts_steps());
  }
  Operands operands(const Tensor& G, State& state) const override {
    MomentumState momentum_of_bucket = momentum_state(state);
    return {advance(G, momentum_of_bucket, rule()).T};
  }
  void check() const override {
    SpectralOptions<Self>::check();
    TORCH_CHECK_VALUE(normalize() == Normalize::Rows || row_beta() == Momentum().row_beta, this->name(),
                      ": row_beta needs normalize 'rows', got '", word(normalize()), "'; leave row_beta out");
  }

 protected:
  using SpectralOptions<Self>::SpectralOptions;

  // Returns true if this rule depends on the number of steps taken.
  virtual bool counts_steps() const { return bias_correction(); }

  Momentum rule() const {
    return {momentum(), nesterov(), bias_correction(), scale(), normalize(), row_beta(), fixed_norm()};
  }

  // Returns the update computed from O.
  Tensor finish(const Tensor& O, const State& state) const {
    MomentumState momentum_of_bucket = momentum_state(state);
    return finished(O, momentum_of_bucket, rule());
  }
};

}  // namespace prism
