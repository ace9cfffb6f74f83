#include "prism/optim/prism.h"

#include <ATen/ops/pow.h>
#include <ATen/ops/sub.h>

#include <cmath>

#include "prism/linalg/scratch.h"
#include "prism/optim/kernel_rule.h"

namespace prism {
namespace {

// The covariance state of one side. Only the pair that `covariance` selects is defined.
struct NoiseState {
  Covariance average;
  Sketch sketch;
  Covariance root;  // Ĉ^(−1/2) as of the last refresh, if the side is whitened
};

struct PrismState : MomentumState {
  NoiseState left, right;
};

struct SideFields {
  std::string suffix;  // "" or "_left", "_right"
  bool transposed;
};

std::vector<SideFields> sides_of(const PrismOptions& options, at::IntArrayRef shape) {
  const Side side = resolved_side(options.used_side(), shape[shape.size() - 2], shape[shape.size() - 1]);
  if (side == Side::Both) return {{"_left", true}, {"_right", false}};
  return {{"", side == Side::Left}};
}

PrismState prism_state(const State& state, const PrismOptions& options, at::IntArrayRef shape) {
  PrismState result{momentum_state(state), {}, {}};
  for (const auto& side : sides_of(options, shape)) {
    NoiseState& noise = side.transposed ? result.left : result.right;
    noise.average = {state["covariance" + side.suffix], state["covariance_scale" + side.suffix]};
    noise.sketch = {state["sketch" + side.suffix], state["sketch_tail" + side.suffix]};
    noise.root = {state["root"], state["root_scale"]};
  }
  return result;
}

// γ_t/γ for each matrix of the bucket.
Tensor scheduled_factor(const PrismState& state, const PrismOptions& options, const Tensor& like) {
  return per_entry(options.gamma_schedule()(state.step), like).to(like.scalar_type());
}

// Updates Ĉ ← β₂ᵏĈ + (1−β₂ᵏ)DᵀD on both sides.
void update(PrismState& state, const Tensor& D, const PrismOptions& options) {
  if (D.numel() == 0) return;
  const double kept = std::pow(options.covariance_beta(), static_cast<double>(options.covariance_every()));
  const auto one_side = [&](NoiseState& noise, const Tensor& X) {
    if (noise.average.C.defined()) average_update(noise.average, X, kept);
    if (!noise.sketch.F.defined()) return;
    if (options.covariance() == CovarianceKind::Sketch) sketch_update(noise.sketch, X, kept);
    if (options.covariance() == CovarianceKind::Subspace) subspace_update(noise.sketch, X, kept);
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

// The indices of the entries to refresh at this step, the first of every `every`. The counts within a bucket differ if
// some entries had steps without a gradient. `step` already includes this step.
Tensor due(const Tensor& step, int64_t every) { return step.sub(1).remainder(every).eq(0).nonzero().flatten(); }

// Updates the entries that are due.
void refresh(PrismState& state, const Tensor& D, const PrismOptions& options) {
  if (options.covariance_every() == 1) return update(state, D, options);
  const Tensor entries = due(state.step, options.covariance_every());
  if (entries.numel() == state.step.numel()) return update(state, D, options);
  PrismState part = state;
  for (Tensor* tensor : tensors_of(part)) *tensor = tensor->index_select(0, entries);
  update(part, D.index_select(0, entries), options);
  const auto whole = tensors_of(state), refreshed = tensors_of(part);
  for (size_t i = 0; i < whole.size(); ++i) whole[i]->index_copy_(0, entries, *refreshed[i]);
}

// The number of steps t that Ĉ covers: k for each refresh, so t is rounded up to a multiple of k.
Tensor steps_covered(const PrismState& state, const PrismOptions& options) {
  const Tensor t = state.step.to(at::kDouble);
  const auto every = static_cast<double>(options.covariance_every());
  return every == 1 ? t : t.div(every).ceil_().mul_(every);
}

// Returns Ĉ/(1 − β₂ᵗ); nothing for a side without state.
Covariance current(const NoiseState& noise, const PrismState& state, const PrismOptions& options) {
  if (!noise.average.C.defined() && !noise.sketch.F.defined()) return {};
  Covariance covariance = noise.average.C.defined() ? noise.average : sketch_covariance(noise.sketch);
  const Tensor correction = 1 - at::pow(options.covariance_beta(), steps_covered(state, options));
  covariance.C = covariance.C / per_entry(correction, covariance.C).to(covariance.C.scalar_type());
  return covariance;
}

// Computes Ĉ^(−1/2) of the entries that are due.
void refresh_root(PrismState& state, const PrismOptions& options) {
  if (!state.right.root.C.defined()) return;
  const Tensor entries = due(state.step, options.root_every());
  if (entries.numel() == 0) return;
  const Covariance now = current(state.right, state, options);
  const Covariance root =
      whitening_root({now.C.index_select(0, entries), now.scale.index_select(0, entries)}, options.polar());
  state.right.root.C.index_copy_(0, entries, root.C);
  state.right.root.scale.index_copy_(0, entries, root.scale);
}

// O = T (TᵀT + γ_t²·…)^(−1/2); the schedule's factor γ_t/γ goes into D or Ĉ, since it may differ between the matrices
// of a bucket.
Tensor shaped(const Operands& operands, const PrismState& state, const PrismOptions& options) {
  if (options.gamma() == 0) return polar(operands.T, options.polar());
  const bool scheduled = !options.gamma_schedule().is_constant_one();
  if (options.covariance() == CovarianceKind::Instant) {
    const Tensor D = scheduled ? operands.D * scheduled_factor(state, options, operands.D) : operands.D;
    return shape_momentum(operands.T, D, options.shaping());
  }
  if (state.right.root.C.defined()) {
    const Tensor X = whitened(operands.T, state.right.root);
    const Tensor factor = scheduled ? scheduled_factor(state, options, X) : Tensor();
    return shape_whitened(X, factor, options.shaping()).to(operands.T.scalar_type());
  }
  Covariance left = current(state.left, state, options);
  Covariance right = current(state.right, state, options);
  for (Covariance* covariance : {&left, &right}) {
    if (scheduled && covariance->C.defined())
      covariance->C = covariance->C * scheduled_factor(state, options, covariance->C).square();
  }
  return shape_with_covariance(operands.T, left, right, options.shaping());
}

// Returns true if this step needs the innovation D.
bool needs_innovation(const PrismState& state, const PrismOptions& options) {
  if (options.covariance() == CovarianceKind::Instant) return options.gamma() > 0;
  return options.covariance_every() == 1 || due(state.step, options.covariance_every()).numel() > 0;
}

}  // namespace

bool PrismOptions::counts_steps() const {
  return bias_correction() || covariance() != CovarianceKind::Instant || !gamma_schedule().is_constant_one();
}

std::vector<Field> PrismOptions::fields(at::IntArrayRef shape) const {
  auto list = MomentumOptions::fields(shape);
  if (covariance() == CovarianceKind::Instant) return list;
  for (const auto& side : sides_of(*this, shape)) {
    const int64_t n = shape[shape.size() - (side.transposed ? 2 : 1)];
    if (covariance() == CovarianceKind::Ema) {
      list.push_back({"covariance" + side.suffix, with_matrix_shape(shape, n, n), Storage::Compute});
      list.push_back({"covariance_scale" + side.suffix, with_matrix_shape(shape, 1, 1), Storage::Counter});
      if (resolved_side(used_side(), shape[shape.size() - 2], n) == Side::Whitened) {
        list.push_back({"root", with_matrix_shape(shape, n, n), Storage::Compute});
        list.push_back({"root_scale", with_matrix_shape(shape, 1, 1), Storage::Counter});
      }
    } else {
      list.push_back({"sketch" + side.suffix, with_matrix_shape(shape, std::min(rank(), n), n), Storage::Compute});
      list.push_back({"sketch_tail" + side.suffix, with_matrix_shape(shape, 1, 1), Storage::Compute});
    }
  }
  return list;
}

Operands PrismOptions::operands(const Tensor& G, State& state) const {
  PrismState prism = prism_state(state, *this, G.sizes());
  const Signal signal = advance(G, prism, rule());
  if (!needs_innovation(prism, *this)) return {signal.T, Tensor()};
  Tensor D = scratch(G.sizes(), G.options());
  return {signal.T, at::sub_out(D, G, signal.M)};
}

Tensor PrismOptions::direction(const Operands& operands, State& state) const {
  PrismState prism = prism_state(state, *this, operands.T.sizes());
  if (covariance() != CovarianceKind::Instant && operands.D.defined()) refresh(prism, operands.D, *this);
  refresh_root(prism, *this);
  return finished(shaped(operands, prism, *this), prism, rule());
}

std::vector<GramSide> PrismOptions::gram_sides(at::IntArrayRef shape) const {
  if (gamma() == 0) return Options::gram_sides(shape);
  const int64_t m = shape[shape.size() - 2], n = shape.back();
  if (resolved_side(used_side(), m, n) == Side::Whitened) return {{m}, {n, root_every()}};
  std::vector<GramSide> sides;
  for (const auto& side : sides_of(*this, shape)) {
    const auto [own, other] = side.transposed ? std::pair(m, n) : std::pair(n, m);
    sides.push_back(
        {covariance() == CovarianceKind::Instant ? std::min(own, 2 * other) : own});  // of [T; γD] if smaller
  }
  return sides;
}

std::optional<Spectrum> PrismOptions::spectrum(const Tensor& G, const State& state) const {
  if (side() == Side::Both && gamma() > 0) return std::nullopt;
  const PrismState prism = prism_state(state, *this, G.sizes());
  const Signal now = signal(G, prism, rule());
  const Tensor D = G - now.M;
  const Tensor O = shaped({now.T, D}, prism, *this);
  const Side used = resolved_side(gamma() > 0 ? used_side() : Side::Short, G.size(-2), G.size(-1));
  double gamma_now = gamma() * gamma_factor(side(), G.size(-2), G.size(-1));
  if (!gamma_schedule().is_constant_one()) gamma_now *= gamma_schedule()(prism.step).item<double>();
  if (covariance() == CovarianceKind::Instant || gamma() == 0) return prism::spectrum(now.T, D, O, gamma_now, used);
  if (used == Side::Whitened) {
    const Tensor X = whitened(now.T, prism.right.root);
    return prism::spectrum(X, white_noise(X, Tensor()), O, gamma_now, Side::Left);
  }
  return prism::spectrum(now.T, current(used == Side::Left ? prism.left : prism.right, prism, *this), O, gamma_now,
                         used);
}

std::unique_ptr<KernelRule> PrismOptions::kernel_rule() const {
  const bool averaged = covariance() == CovarianceKind::Ema;
  if (side() == Side::Both || (!averaged && covariance() != CovarianceKind::Instant)) return nullptr;
  if (averaged && gamma() == 0) return nullptr;
  auto kernel = momentum_kernel(rule(), polar());
  if (kernel == nullptr || gamma() == 0) return kernel;
  auto& spectral = std::get<SpectralKernel>(*kernel);
  spectral.side = used_side();
  spectral.gamma_schedule = gamma_schedule();
  spectral.rule.noisy = true;
  spectral.rule.gamma.value = gamma();
  spectral.rule.averaged = averaged;
  spectral.rule.covariance_beta = covariance_beta();
  spectral.rule.covariance_every = covariance_every();
  spectral.rule.root_every = root_every();
  return kernel;
}

// The recommended setting, chosen by the measurements in docs/results.md.
void PrismOptions::use_mixed_defaults() {
  if (!is_set("lr")) lr(0.005);
  if (!is_set("gamma")) gamma(0.17);
  if (!is_set("side")) side(Side::Whitened);
  if (!is_set("covariance") && solver() != Solver::Stacked) covariance(CovarianceKind::Ema);
  if (!is_set("coefficients")) coefficients("minimax9");
  if (!is_set("normalize")) normalize(Normalize::Rows);
}

void PrismOptions::check() const {
  MomentumOptions::check();
  static const PrismOptions defaults;
  const bool instant = covariance() == CovarianceKind::Instant, stacked = solver() == Solver::Stacked;
  const bool sketched = covariance() == CovarianceKind::Sketch || covariance() == CovarianceKind::Subspace;
  TORCH_CHECK_VALUE(covariance_every() == 1 || !instant,
                    "prism: covariance_every is for averaged covariances, got covariance 'instant'; leave it out");
  TORCH_CHECK_VALUE(!instant || covariance_beta() == defaults.covariance_beta(),
                    "prism: covariance_beta is for averaged covariances, got covariance 'instant'; leave it out");
  TORCH_CHECK_VALUE(sketched || rank() == defaults.rank(),
                    "prism: rank is for covariance 'sketch' and 'subspace', got covariance '", word(covariance()),
                    "'; leave it out");
  gamma_schedule().check("prism: gamma_schedule");
  TORCH_CHECK_VALUE(!stacked || instant, "prism: solver 'stacked' needs covariance 'instant', got '",
                    word(covariance()), "'; set that, or use solver 'gram' or 'exact'");
  TORCH_CHECK_VALUE(!stacked || side() != Side::Both,
                    "prism: solver 'stacked' has no side 'both'; use solver 'gram' or 'exact'");
  const bool every_step = root_every() == 1;  // as files say that are older than the default
  TORCH_CHECK_VALUE(used_side() == Side::Whitened || root_every() == defaults.root_every() || every_step,
                    "prism: root_every is for side 'whitened' with covariance 'ema', got side '", word(side()),
                    "' and covariance '", word(covariance()), "'; leave it out");
  if (side() == Side::Both) check_no_iteration("side 'both' uses the coupled inverse root");
}

}  // namespace prism
