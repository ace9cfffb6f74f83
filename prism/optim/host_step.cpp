#include "prism/optim/host_step.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "prism/io/clones.h"
#include "prism/optim/kernel_rule.h"

namespace prism {
namespace {

using cuda::Elementwise;

constexpr int64_t kChunk = 4096;   // elements at a time: the buffers of 16-bit weights stay in the cache
constexpr int64_t kGrain = 32768;  // elements worth a thread

// The numbers of a step in the type to compute in, of one parameter.
template <class Real>
struct Numbers {
  Real grad_factor, coupled_decay;       // g = grad_factor·G + coupled_decay·W
  Real beta1, rest1, beta2, rest2, eps;  // β₁, 1 − β₁, β₂, 1 − β₂, ε
  Real root_factor;                      // Adam: 1/√(1 − β₂ᵗ)
  Real keep, rate;                       // 1 − lr·λ, and lr over the rule's correction
};

// Some elements of one parameter: pointers to `size` numbers.
template <class Real>
struct Chunk {
  int64_t size;
  const Real *G, *W_before;    // W_before: the weights as the user sees them
  Real* W;                     // the weights to update: the same, or their masters
  std::array<Real*, 3> state;  // in the order of ElementwiseKernel::fields; null if the rule keeps no such field
};

// (1 − w)·before + w·now, from the nearer end: exactly `now` for w = 1.
template <class Real>
PRISM_INLINE Real mean_of(Real before, Real now, Real w) {
  return w < Real(0.5) ? std::fma(w, now - before, before) : std::fma(w - 1, now - before, now);
}

// Returns U for one element and advances its state. The correction that all elements share is part of the rate.
template <Elementwise Kind, bool kSecond, bool kThird, class Real>
PRISM_INLINE Real direction(Real g, Real (&state)[3], const Numbers<Real>& a) {
  if constexpr (Kind == Elementwise::Adam) {
    auto& [m, v, largest] = state;
    m = mean_of(m, g, a.rest1);
    v = std::fma(a.rest2 * g, g, a.beta2 * v);
    if constexpr (kThird) largest = largest != largest || largest > v ? largest : v;  // NaN if either is
    return m / std::fma(std::sqrt(kThird ? largest : v), a.root_factor, a.eps);
  } else if constexpr (Kind == Elementwise::AdaGrad) {
    state[0] = std::fma(g, g, state[0]);
    return g / (std::sqrt(state[0]) + a.eps);
  } else {
    auto& [v, mean, velocity] = state;
    v = std::fma(a.rest2 * g, g, a.beta2 * v);
    Real variance = v;
    if constexpr (kSecond) {
      mean = mean_of(mean, g, a.rest2);
      variance = std::fma(-mean, mean, v);
      variance = variance < 0 ? 0 : variance;  // rounding can make it negative
    }
    const Real X = g / (std::sqrt(variance) + a.eps);
    if constexpr (!kThird) return X;
    return velocity = std::fma(a.beta1, velocity, X);
  }
}

// Every operation is rounded by itself or is a fused multiply-add written as such: this file is compiled without
// contraction. So the bits depend neither on the instructions of the processor nor on where a chunk begins. Arguments
// are copies, so that no store can change them.
template <Elementwise Kind, bool kSecond, bool kThird, class Real>
PRISM_INLINE void step_elements(Chunk<Real> x, Numbers<Real> a) {
  constexpr bool kHas[3] = {true, kSecond, kThird};
#pragma omp simd
  for (int64_t i = 0; i < x.size; ++i) {
    Real state[3] = {};
    for (int s = 0; s < 3; ++s) {
      if (kHas[s]) state[s] = x.state[s][i];
    }
    Real g = a.grad_factor * x.G[i];
    if (a.coupled_decay != 0) g = std::fma(a.coupled_decay, x.W_before[i], g);
    const Real U = direction<Kind, kSecond, kThird>(g, state, a);
    x.W[i] = std::fma(-a.rate, U, a.keep * x.W[i]);
    for (int s = 0; s < 3; ++s) {
      if (kHas[s]) x.state[s][i] = state[s];
    }
  }
}

template <class Real>
PRISM_INLINE void step_elements(Elementwise kind, Chunk<Real> x, Numbers<Real> a) {
  const bool second = x.state[1] != nullptr, third = x.state[2] != nullptr;
  if (kind == Elementwise::Adam) {
    third ? step_elements<Elementwise::Adam, true, true>(x, a) : step_elements<Elementwise::Adam, true, false>(x, a);
  } else if (kind == Elementwise::AdaGrad) {
    step_elements<Elementwise::AdaGrad, false, false>(x, a);
  } else if (second) {
    third ? step_elements<Elementwise::RMSprop, true, true>(x, a)
          : step_elements<Elementwise::RMSprop, true, false>(x, a);
  } else {
    third ? step_elements<Elementwise::RMSprop, false, true>(x, a)
          : step_elements<Elementwise::RMSprop, false, false>(x, a);
  }
}

PRISM_CLONES void step_chunk(Elementwise kind, Chunk<float> x, Numbers<float> a) { step_elements(kind, x, a); }
PRISM_CLONES void step_chunk(Elementwise kind, Chunk<double> x, Numbers<double> a) { step_elements(kind, x, a); }

// The weights and gradient of a parameter, which may be narrower than the type to compute in, and its state.
template <class Real, class Weight>
struct Entry {
  const Weight* G;
  Weight* W;
  Real* master;  // null if there is none
  std::array<Real*, 3> state;
  Numbers<Real> numbers;
};

// Memory of one thread for 16-bit gradients and weights in the type to compute in.
template <class Real>
struct Buffers {
  std::array<Real, kChunk> G, W;
};

// Takes the step of one chunk of 16-bit weights.
template <class Real, class Weight>
void step_narrow(Elementwise kind, const Numbers<Real>& numbers, const Weight* G, Weight* W, Real* master,
                 Chunk<Real> x, Buffers<Real>& buffers) {
  for (int64_t i = 0; i < x.size; ++i) {
    buffers.G[i] = static_cast<Real>(G[i]);
    buffers.W[i] = static_cast<Real>(W[i]);
  }
  x.G = buffers.G.data();
  x.W_before = x.W = buffers.W.data();
  if (master != nullptr) {
    // A weight that is no longer its rounded master was written by the user since the last step.
    for (int64_t i = 0; i < x.size; ++i) master[i] = static_cast<Weight>(master[i]) == W[i] ? master[i] : x.W[i];
    x.W = master;
  }
  step_chunk(kind, x, numbers);
  for (int64_t i = 0; i < x.size; ++i) W[i] = static_cast<Weight>(x.W[i]);
}

template <class Real, class Weight>
void step_entries(Elementwise kind, const std::vector<Entry<Real, Weight>>& entries, int64_t size) {
  at::parallel_for(0, static_cast<int64_t>(entries.size()) * size, kGrain, [&](int64_t first, int64_t last) {
    Buffers<Real> buffers;
    while (first < last) {
      const auto& entry = entries[first / size];
      const int64_t begin = first % size;
      Chunk<Real> x{};
      x.size = std::min({kChunk, size - begin, last - first});
      for (size_t s = 0; s < x.state.size(); ++s) x.state[s] = entry.state[s] ? entry.state[s] + begin : nullptr;
      const Weight* G = entry.G + begin;
      Weight* W = entry.W + begin;
      if constexpr (std::is_same_v<Real, Weight>) {
        x.G = G;
        x.W_before = x.W = W;
        step_chunk(kind, x, entry.numbers);
      } else {
        step_narrow(kind, entry.numbers, G, W, entry.master ? entry.master + begin : nullptr, x, buffers);
      }
      first += x.size;
    }
  });
}

template <class Real>
Numbers<Real> numbers_of(const cuda::ElementwiseRule& rule, const Options& options, double lr, double grad_scale,
                         double step) {
  const double decay = options.weight_decay();
  double correction = 1, root_correction = 1;
  if (rule.kind == Elementwise::Adam) {
    correction = 1 - std::pow(rule.beta1, step);
    root_correction = std::sqrt(1 - std::pow(rule.beta2, step));
  }
  if (rule.kind == Elementwise::AdaGrad) correction = 1 + (step - 1) * rule.lr_decay;
  const auto real = [](double value) { return static_cast<Real>(value); };
  return {.grad_factor = real((options.maximize() ? -1 : 1) / grad_scale),
          .coupled_decay = real(rule.couples_decay ? decay : 0),
          .beta1 = real(rule.beta1),
          .rest1 = real(1 - rule.beta1),
          .beta2 = real(rule.beta2),
          .rest2 = real(1 - rule.beta2),
          .eps = real(rule.eps),
          .root_factor = real(1 / root_correction),
          .keep = real(rule.couples_decay ? 1 : 1 - lr * decay),
          .rate = real(lr / correction)};
}

template <class Real, class Weight>
void step_bucket_of(const ElementwiseKernel& kernel, const Options& options, Bucket& bucket,
                    const std::vector<DenseEntry>& active, const StepInputs& inputs) {
  const int64_t size = c10::multiply_integers(bucket.shape);
  const auto field = [&](const char* name, int64_t index) -> Real* {
    const Tensor stack = bucket.state[name];
    return stack.defined() ? stack.mutable_data_ptr<Real>() + index * size : nullptr;
  };
  const double lr = inputs.lr.item<double>();
  const double grad_scale = inputs.grad_scale.defined() ? inputs.grad_scale.to(at::kDouble).item<double>() : 1;
  float* steps = bucket.state["step"].defined() ? bucket.state["step"].mutable_data_ptr<float>() : nullptr;
  std::vector<Entry<Real, Weight>> entries;
  for (const DenseEntry& dense : active) {
    const double step = steps != nullptr ? steps[dense.index] += 1 : 1;
    auto& entry = entries.emplace_back();
    entry.G = dense.G.const_data_ptr<Weight>();
    entry.W = dense.W.mutable_data_ptr<Weight>();
    entry.master = field("master", dense.index);
    for (size_t f = 0; f < kernel.fields.size(); ++f) entry.state[f] = field(kernel.fields[f], dense.index);
    entry.numbers = numbers_of<Real>(kernel.rule, options, lr, grad_scale, step);
    dense.W.unsafeGetTensorImpl()->bump_version();  // as an in-place operator does: autograd checks it
  }
  step_entries(kernel.rule.kind, entries, size);
}

}  // namespace

bool step_on_host(const Options& options, Bucket& bucket, const std::vector<Tensor>& parameters,
                  const std::vector<Tensor>& gradients, const StepInputs& inputs) {
  if (!bucket.device.is_cpu() || bucket.layout || c10::multiply_integers(bucket.shape) == 0) return false;
  if (inputs.apply.defined() || !inputs.lr.is_cpu()) return false;
  const auto rule = options.kernel_rule();
  const auto* kernel = rule ? std::get_if<ElementwiseKernel>(rule.get()) : nullptr;
  if (kernel == nullptr) return false;
  const auto compute = compute_type(options, bucket.type);
  const bool narrow = (bucket.type == at::kBFloat16 || bucket.type == at::kHalf) && compute == at::kFloat;
  if (bucket.type != compute && !narrow) return false;
  const auto active = dense_entries(options, bucket, parameters, gradients, compute);
  if (!active) return false;
  if (active->empty()) return true;
  if (active->front().G.scalar_type() != bucket.type) return false;
  switch (bucket.type) {
    case at::kFloat:
      step_bucket_of<float, float>(*kernel, options, bucket, *active, inputs);
      break;
    case at::kDouble:
      step_bucket_of<double, double>(*kernel, options, bucket, *active, inputs);
      break;
    case at::kBFloat16:
      step_bucket_of<float, at::BFloat16>(*kernel, options, bucket, *active, inputs);
      break;
    default:
      step_bucket_of<float, at::Half>(*kernel, options, bucket, *active, inputs);
  }
  return true;
}

}  // namespace prism
