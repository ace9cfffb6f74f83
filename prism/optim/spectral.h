#pragma once

#include "prism/optim/matrix.h"

namespace prism {

// What an orthogonalised update is multiplied by, for matrices (m, n).
//   Moonlight  0.2·√max(m, n): AdamW's root mean square (Liu et al. 2025)
//   Spectral   √max(1, m/n)
//   None       1
enum class ScaleRule { Moonlight, Spectral, None };

double scale_factor(ScaleRule rule, at::IntArrayRef shape);

// What is done to the rows of an update O before its scale.
//   None  nothing
//   Rows  each output row is divided by the root of a running mean of its squares (Li et al. 2025, "NorMuon"):
//           v ← β₂v + (1−β₂)·mean of O² along the row;   O′ = O/√v,  rescaled so that ‖O′‖_F = ‖O‖_F
//         As in the authors' code v is not bias-corrected: the factor would be the same for all rows, and the rescaling
//         takes it out. Nothing is added to √v, and rows of zeros stay zero.
enum class Normalize { None, Rows };

// The methods built on a polar factor: how it is computed.
class SpectralOptions : public MatrixOptions {
 public:
  void check() const override;
  std::vector<Option> table() override;

  const Solver& solver() const { return solver_; }
  const Coefficients& coefficients() const { return coefficients_; }
  int64_t steps() const { return steps_; }

  PolarOptions polar() const;

 protected:
  SpectralOptions(double lr, double weight_decay, const Coefficients& coefficients = "jordan")
      : MatrixOptions(lr, weight_decay), coefficients_(coefficients), default_coefficients_(coefficients) {}

  // Refuses coefficients and steps where `why` nothing would use them.
  void check_no_iteration(const std::string& why) const;

  Solver solver_ = Solver::Gram;
  Coefficients coefficients_;
  int64_t steps_ = 0;

 private:
  Coefficients default_coefficients_;
};

// Those with momentum.
class MomentumOptions : public SpectralOptions {
 public:
  void check() const override;
  std::vector<Option> table() override;
  std::vector<Field> fields(at::IntArrayRef shape) const override;

  bool can_be_captured() const override { return solver() == Solver::Gram && normalize() == Normalize::None; }

  double momentum() const { return momentum_; }
  bool nesterov() const { return nesterov_; }
  bool bias_correction() const { return bias_correction_; }
  const ScaleRule& scale() const { return scale_; }
  const Normalize& normalize() const { return normalize_; }
  double row_beta() const { return row_beta_; }

 protected:
  using SpectralOptions::SpectralOptions;

  // Whether something of this optimizer depends on the number of steps taken.
  virtual bool counts_steps() const { return bias_correction(); }

  double momentum_ = 0.95;
  bool nesterov_ = true;
  bool bias_correction_ = false;
  ScaleRule scale_ = ScaleRule::Moonlight;
  Normalize normalize_ = Normalize::None;
  double row_beta_ = kDefaultRowBeta;

 private:
  static constexpr double kDefaultRowBeta = 0.95;
};

struct MomentumState {
  Tensor M;           // (B, …, m, n)
  Tensor step;        // (B), undefined where nothing depends on it
  Tensor row_moment;  // (B, …, m, 1): v of Normalize::Rows, else undefined
};
MomentumState momentum_state(const State& state);

// What is shaped and what it is compared with: T, and the prediction M of the gradient (D = G − M).
struct Signal {
  Tensor T, M;
};

// M ← βM + (1−β)G in place, then the signal.
Signal advance(const Tensor& G, MomentumState& state, const MomentumOptions& options);

// T = M, or (1−β)G + βM with Nesterov. With bias correction M/(1−βᵗ) stands for M in both.
Signal signal(const Tensor& G, const MomentumState& state, const MomentumOptions& options);

// The update scale(m, n)·O, its rows normalised where the options say so, which advances the state.
Tensor finished(Tensor O, MomentumState& state, const MomentumOptions& options);

template <class Self, class Base = SpectralOptions>
class SpectralOptionsOf : public MatrixOptionsOf<Self, Base> {
 public:
  using Base::solver, Base::coefficients, Base::steps;
  Self& solver(Solver value) { return this->solver_ = value, this->self(); }
  Self& coefficients(const Coefficients& value) { return this->coefficients_ = value, this->self(); }
  Self& steps(int64_t value) { return this->steps_ = value, this->self(); }

 protected:
  using MatrixOptionsOf<Self, Base>::MatrixOptionsOf;
};

template <class Self>
class MomentumOptionsOf : public SpectralOptionsOf<Self, MomentumOptions> {
 public:
  using MomentumOptions::momentum, MomentumOptions::nesterov, MomentumOptions::bias_correction, MomentumOptions::scale,
      MomentumOptions::normalize, MomentumOptions::row_beta;
  Self& momentum(double value) { return this->momentum_ = value, this->self(); }
  Self& nesterov(bool value) { return this->nesterov_ = value, this->self(); }
  Self& bias_correction(bool value) { return this->bias_correction_ = value, this->self(); }
  Self& scale(ScaleRule value) { return this->scale_ = value, this->self(); }
  Self& normalize(Normalize value) { return this->normalize_ = value, this->self(); }
  Self& row_beta(double value) { return this->row_beta_ = value, this->self(); }

 protected:
  using SpectralOptionsOf<Self, MomentumOptions>::SpectralOptionsOf;
};

}  // namespace prism
