#pragma once

#include "prism/optim/kernel_rule.h"
#include "prism/optim/optimizer.h"

namespace prism {

// The defaults of AdamW inside Mixed and in the trainer, where it trains the rest: embeddings, head, norms and biases
// (docs/results.md). On its own, AdamW has torch's defaults.
inline constexpr double kMixedRate = 0.02;
inline constexpr Betas kMixedBetas = {0.9, 0.95};

// The rule of Adam and AdamW (Kingma & Ba 2015), element by element, t counted per parameter:
//   m ← β₁m + (1−β₁)G;  v ← β₂v + (1−β₂)G²;  U = (m/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + ε)
// With amsgrad the denominator has the largest v so far.
struct AdamRule {
  Betas betas;
  double eps;
  bool amsgrad;
};
std::vector<Field> adam_fields(at::IntArrayRef shape, const AdamRule& rule);
Tensor adam_direction(const Tensor& G, State& state, const AdamRule& rule);

// Returns 1 − β₁ᵗ and √(1 − β₂ᵗ) for each number of steps t, computed in float64.
std::pair<Tensor, Tensor> adam_corrections(const Tensor& steps, const Betas& betas, at::ScalarType type);
std::unique_ptr<KernelRule> adam_kernel(const AdamRule& rule, bool couples_decay);

template <class Self>
class AdamFamilyOptions : public OptionsOf<Self> {
  PRISM_OPTION(Betas, betas, Betas(0.9, 0.999), kFraction, "(β₁, β₂) of the first and second moments");
  PRISM_OPTION(double, eps, 1e-8, kNotNegative, "ε added to the denominator");
  PRISM_OPTION(bool, amsgrad, false, kAny, "divide by the largest second moment so far");

 public:
  std::vector<Field> fields(at::IntArrayRef shape) const override { return adam_fields(shape, rule()); }
  Tensor direction(const Operands& operands, State& state) const override {
    return adam_direction(operands.T, state, rule());
  }
  std::unique_ptr<KernelRule> kernel_rule() const override { return adam_kernel(rule(), this->couples_decay()); }

 protected:
  using OptionsOf<Self>::OptionsOf;
  AdamRule rule() const { return {betas(), eps(), amsgrad()}; }
};

// torch.optim.Adam: weight decay is added to the gradient.
class AdamOptions : public AdamFamilyOptions<AdamOptions> {
 public:
  AdamOptions(double lr = 1e-3) : AdamFamilyOptions(lr, /*weight_decay=*/0) { document_coupled_decay(); }
  std::string name() const override { return "adam"; }
  bool couples_decay() const override { return true; }
};

using Adam = OptimizerOf<AdamOptions>;

// torch.optim.AdamW (Loshchilov & Hutter 2019): Adam with decoupled weight decay.
class AdamWOptions : public AdamFamilyOptions<AdamWOptions> {
 public:
  AdamWOptions() : AdamFamilyOptions(/*lr=*/1e-3, /*weight_decay=*/0.01) {}
  AdamWOptions(double lr) : AdamWOptions() { this->lr(lr); }
  std::string name() const override { return "adamw"; }
  void use_mixed_defaults() override {
    if (!is_set("lr")) lr(kMixedRate);
    if (!is_set("betas")) betas(kMixedBetas);
  }
};

using AdamW = OptimizerOf<AdamWOptions>;

}  // namespace prism
