#include "prism/optim/prism.h"

#include <ATen/ops/pow.h>

#include <cmath>

#include "prism/optim/option_types.h"

namespace prism {
namespace {

struct SideFields {
  std::string suffix;  // "" or "_left", "_right"
  bool transposed;
};

std::vector<SideFields> sides_of(const PrismOptions& options, at::IntArrayRef shape) {
  const Side side = resolved_side(options.side(), shape[shape.size() - 2], shape[shape.size() - 1]);
  if (side == Side::Both) return {{"_left", true}, {"_right", false}};
  return {{"", side == Side::Left}};
}

PrismState prism_state(const State& state, const PrismOptions& options, at::IntArrayRef shape) {
  PrismState result{momentum_state(state), {}, {}};
  for (const auto& side : sides_of(options, shape)) {
    NoiseState& noise = side.transposed ? result.left : result.right;
    noise.average = {state["covariance" + side.suffix], state["covariance_scale" + side.suffix]};
    noise.sketch = {state["sketch" + side.suffix], state["sketch_tail" + side.suffix]};
  }
  return result;
}

// γ_t/γ for each matrix of the bucket.
Tensor gamma_factor(const PrismState& state, const PrismOptions& options, const Tensor& like) {
  return per_entry(options.gamma_schedule()(state.step), like).to(like.scalar_type());
}

// Ĉ ← β₂ᵏĈ + (1−β₂ᵏ)DᵀD of both sides.
void update(PrismState& state, const Tensor& D, const PrismOptions& options) {
  if (D.numel() == 0) return;
  const double kept = std::pow(options.covariance_beta(), static_cast<double>(options.covariance_every()));
  const auto one_side = [&](NoiseState& noise, const Tensor& X) {
    if (noise.average.C.defined()) average_update(noise.average, X, kept);
    if (noise.sketch.F.defined()) sketch_update(noise.sketch, X, kept);
  };
  one_side(state.left, D.mT());
  one_side(state.right, D);
}

std::vector<Tensor*> tensors_of(PrismState& state) {
  std::vector<Tensor*> list;
  for (NoiseState* noise : {&state.left, &state.right}) {
    for (Tensor* tensor : {&noise->average.C, &noise->average.scale, &noise->sketch.F, &noise->sketch.tail}) {
      if (tensor->defined()) list.push_back(tensor);
    }
  }
  return list;
}

// The update of the entries that are due: those of a bucket may have missed gradients, and so count differently.
void refresh(PrismState& state, const Tensor& G, const Tensor& M, const PrismOptions& options) {
  const int64_t every = options.covariance_every();
  if (every == 1) return update(state, G - M, options);
  const Tensor due = state.step.sub(1).remainder(every).eq(0).nonzero().flatten();
  if (due.numel() == 0) return;
  if (due.numel() == state.step.numel()) return update(state, G - M, options);
  PrismState part = state;
  for (Tensor* tensor : tensors_of(part)) *tensor = tensor->index_select(0, due);
  update(part, G.index_select(0, due) - M.index_select(0, due), options);
  const auto whole = tensors_of(state), refreshed = tensors_of(part);
  for (size_t i = 0; i < whole.size(); ++i) whole[i]->index_copy_(0, due, *refreshed[i]);
}

// The steps t that Ĉ stands for: k for each refresh, so that t is rounded up to a multiple of k.
Tensor steps_covered(const PrismState& state, const PrismOptions& options) {
  const Tensor t = state.step.to(at::kDouble);
  const auto every = static_cast<double>(options.covariance_every());
  return every == 1 ? t : t.div(every).ceil_().mul_(every);
}

// Ĉ/(1 − β₂ᵗ); nothing for a side that has no state.
Covariance current(const NoiseState& noise, const PrismState& state, const PrismOptions& options) {
  if (!noise.average.C.defined() && !noise.sketch.F.defined()) return {};
  Covariance covariance = noise.average.C.defined() ? noise.average : sketch_covariance(noise.sketch);
  const Tensor correction = 1 - at::pow(options.covariance_beta(), steps_covered(state, options));
  covariance.C = covariance.C / per_entry(correction, covariance.C).to(covariance.C.scalar_type());
  return covariance;
}

// O = T (TᵀT + γ_t²·…)^(−1/2); the schedule's factor γ_t/γ goes into D or Ĉ, since it may differ between the matrices
// of a bucket.
Tensor shaped(const Tensor& G, const Signal& signal, const PrismState& state, const PrismOptions& options) {
  if (options.gamma() == 0) return polar(signal.T, options.polar());
  const bool scheduled = !options.gamma_schedule().is_constant_one();
  if (options.covariance() == CovarianceKind::Instant) {
    Tensor D = G - signal.M;
    if (scheduled) D.mul_(gamma_factor(state, options, D));
    return shape_momentum(signal.T, D, options.shaping());
  }
  Covariance left = current(state.left, state, options);
  Covariance right = current(state.right, state, options);
  for (Covariance* covariance : {&left, &right}) {
    if (scheduled && covariance->C.defined())
      covariance->C = covariance->C * gamma_factor(state, options, covariance->C).square();
  }
  return shape_with_covariance(signal.T, left, right, options.shaping());
}

}  // namespace

bool PrismOptions::counts_steps() const {
  return bias_correction() || covariance() != CovarianceKind::Instant || !gamma_schedule().is_constant_one();
}

std::vector<Field> PrismOptions::fields(at::IntArrayRef shape) const {
  auto list = MomentumOptionsOf::fields(shape);
  if (covariance() == CovarianceKind::Instant) return list;
  for (const auto& side : sides_of(*this, shape)) {
    const int64_t n = shape[shape.size() - (side.transposed ? 2 : 1)];
    if (covariance() == CovarianceKind::Ema) {
      list.push_back({"covariance" + side.suffix, with_matrix_shape(shape, n, n), Storage::Compute});
      list.push_back({"covariance_scale" + side.suffix, with_matrix_shape(shape, 1, 1), Storage::Counter});
    } else {
      list.push_back({"sketch" + side.suffix, with_matrix_shape(shape, std::min(rank(), n), n), Storage::Compute});
      list.push_back({"sketch_tail" + side.suffix, with_matrix_shape(shape, 1, 1), Storage::Compute});
    }
  }
  return list;
}

Tensor prism_direction(const Tensor& G, PrismState& state, const PrismOptions& options) {
  const Signal signal = advance(G, state, options);
  if (options.covariance() != CovarianceKind::Instant) refresh(state, G, signal.M, options);
  return finished(shaped(G, signal, state, options), state, options);
}

Tensor PrismOptions::direction(const Tensor& G, State& state) const {
  PrismState prism = prism_state(state, *this, G.sizes());
  return prism_direction(G, prism, *this);
}

std::optional<Spectrum> PrismOptions::spectrum(const Tensor& G, const State& state) const {
  if (side() == Side::Both && gamma() > 0) return std::nullopt;
  const PrismState prism = prism_state(state, *this, G.sizes());
  const Signal now = signal(G, prism, *this);
  const Tensor O = shaped(G, now, prism, *this);
  const Side used = resolved_side(gamma() > 0 ? side() : Side::Auto, G.size(-2), G.size(-1));
  const double gamma_now =
      gamma_schedule().is_constant_one() ? gamma() : gamma() * gamma_schedule()(prism.step).item<double>();
  if (covariance() == CovarianceKind::Instant || gamma() == 0)
    return prism::spectrum(now.T, G - now.M, O, gamma_now, used);
  return prism::spectrum(now.T, current(used == Side::Left ? prism.left : prism.right, prism, *this), O, gamma_now,
                         used);
}

void PrismOptions::check() const {
  MomentumOptionsOf::check();
  TORCH_CHECK_VALUE(std::isfinite(gamma()) && gamma() >= 0, "prism: gamma must be 0 or more, got ", gamma());
  TORCH_CHECK_VALUE(covariance_beta() >= 0 && covariance_beta() < 1,
                    "prism: covariance_beta must be from 0 to below 1, got ", covariance_beta());
  TORCH_CHECK_VALUE(covariance_every() >= 1, "prism: covariance_every must be 1 or more, got ", covariance_every());
  TORCH_CHECK_VALUE(covariance_every() == 1 || covariance() != CovarianceKind::Instant,
                    "prism: covariance_every needs covariance 'ema' or 'sketch', got 'instant'; leave it out");
  TORCH_CHECK_VALUE(rank() >= 1, "prism: rank must be 1 or more, got ", rank());
  const PrismOptions defaults;
  TORCH_CHECK_VALUE(
      covariance() != CovarianceKind::Instant || covariance_beta() == defaults.covariance_beta(),
      "prism: covariance_beta is for covariance 'ema' and 'sketch', got covariance 'instant'; leave it out");
  TORCH_CHECK_VALUE(covariance() == CovarianceKind::Sketch || rank() == defaults.rank(),
                    "prism: rank is for covariance 'sketch', got covariance '", word(covariance()), "'; leave it out");
  gamma_schedule().check("prism: gamma_schedule");
  const bool stacked = solver() == Solver::Stacked;
  TORCH_CHECK_VALUE(!stacked || covariance() == CovarianceKind::Instant,
                    "prism: solver 'stacked' needs covariance 'instant', got '", word(covariance()),
                    "'; use solver 'gram' or 'exact'");
  TORCH_CHECK_VALUE(!stacked || side() != Side::Both,
                    "prism: solver 'stacked' has no side 'both'; use solver 'gram' or 'exact'");
  if (side() == Side::Both) check_no_iteration("side 'both' uses the coupled inverse root");
}

bool PrismOptions::can_be_captured() const {
  return MomentumOptionsOf::can_be_captured() && covariance() != CovarianceKind::Sketch && side() != Side::Both &&
         covariance_every() == 1;
}

std::vector<Option> PrismOptions::table() {
  return MomentumOptionsOf::table() +
         std::vector<Option>{
             option("gamma", gamma_, "damping γ ≥ 0 of noisy directions; 0 is Muon"),
             option("gamma_schedule", gamma_schedule_, "γ as a function of the step: a factor from 0 to 1"),
             option("side", side_, "whose Gram matrix shapes; auto is the shorter side, long the other"),
             option("covariance", covariance_,
                    "instant: of this step; ema: a dense average; sketch: a low-rank stream"),
             option("covariance_beta", covariance_beta_, "β₂ of the averaged covariances"),
             option("covariance_every", covariance_every_, "steps from refresh to refresh of the averaged covariances"),
             option("rank", rank_, "of the sketch; above the matrix's side it means that side"),
         };
}

}  // namespace prism
