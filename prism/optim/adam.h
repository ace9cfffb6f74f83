#pragma once

#include "prism/optim/optimizer.h"

namespace prism {

// What Adam and AdamW share (Kingma & Ba 2015), element by element, t counted per parameter:
//   m ← β₁m + (1−β₁)G;  v ← β₂v + (1−β₂)G²;  U = (m/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + ε)
// With amsgrad the largest v so far stands in the denominator.
class AdamFamilyOptions : public Options {
 public:
  std::vector<Field> fields(at::IntArrayRef shape) const override;
  Tensor direction(const Tensor& G, State& state) const override;
  void check() const override;
  bool can_be_captured() const override { return true; }
  std::vector<Option> table() override;

  const std::pair<double, double>& betas() const { return betas_; }
  double eps() const { return eps_; }
  bool amsgrad() const { return amsgrad_; }

 protected:
  using Options::Options;

  std::pair<double, double> betas_ = {0.9, 0.999};
  bool betas_are_set_ = false;
  double eps_ = 1e-8;
  bool amsgrad_ = false;
};

struct AdamState {
  Tensor step;  // (B)
  Tensor m, v;
  Tensor v_max;  // undefined without amsgrad
};

Tensor adam_direction(const Tensor& G, AdamState& state, const AdamFamilyOptions& options);

template <class Self>
class AdamFamilyOptionsOf : public OptionsOf<Self, AdamFamilyOptions> {
 public:
  using AdamFamilyOptions::betas, AdamFamilyOptions::eps, AdamFamilyOptions::amsgrad;
  Self& betas(std::pair<double, double> value) {
    return this->betas_ = value, this->betas_are_set_ = true, this->self();
  }
  Self& eps(double value) { return this->eps_ = value, this->self(); }
  Self& amsgrad(bool value) { return this->amsgrad_ = value, this->self(); }

 protected:
  using OptionsOf<Self, AdamFamilyOptions>::OptionsOf;
};

// torch.optim.Adam: weight decay is added to the gradient.
class AdamOptions : public AdamFamilyOptionsOf<AdamOptions> {
 public:
  AdamOptions(double lr = 1e-3) : AdamFamilyOptionsOf(lr, /*weight_decay=*/0) {}  // NOLINT: as torch's options
  std::string name() const override { return "adam"; }
  bool couples_decay() const override { return true; }
};

class Adam : public OptimizerOf<AdamOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace prism
