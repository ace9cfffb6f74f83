#include "prism/optim/host_step.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "prism/io/clones.h"
#include "prism/optim/adam.h"
#include "prism/optim/kernel_rule.h"

namespace prism {
namespace {

constexpr int64_t kChunk = 4096;   // elements at a time: what two loops share stays in the cache
constexpr int64_t kGrain = 32768;  // elements worth a thread

// The numbers of a step in the type to compute in, of one parameter.
template <class Real>
struct Numbers {
  Real sign, grad_scale, coupled_decay;     // g = sign·G/grad_scale + coupled_decay·W
  Real beta1_rest, beta2, beta2_rest, eps;  // 1 − β₁, β₂, 1 − β₂, ε
  Real correction1, root_correction2;       // 1 − β₁ᵗ, √(1 − β₂ᵗ)
  Real keep, rate;                          // 1 − lr·λ, lr
  bool scales, couples;
};

// One chunk of one parameter. All pointers are to `size` elements.
template <class Real>
struct Chunk {
  int64_t size;
  const Real *G, *W_before;          // W_before: for coupled decay
  Real *m, *v, *largest, *root, *W;  // largest: null without amsgrad; root: √ of the second moment
};

// The fused multiply-adds below are those of ATen's lerp, addcmul and add. All other operations are rounded on their own:
// this file is compiled without contraction. Arguments are copies, so that no store can change them.
template <class Real>
PRISM_INLINE void moments(Chunk<Real> x, Numbers<Real> a) {
  const bool small = std::abs(a.beta1_rest) < Real(0.5);
  const Real weight = small ? a.beta1_rest : a.beta1_rest - 1;
#pragma omp simd
  for (int64_t i = 0; i < x.size; ++i) {
    Real g = a.sign * x.G[i];
    if (a.scales) g = g / a.grad_scale;
    if (a.couples) g = g + x.W_before[i] * a.coupled_decay;
    const Real m = x.m[i];
    x.m[i] = std::fma(weight, g - m, small ? m : g);
    const Real v = std::fma(a.beta2_rest * g, g, x.v[i] * a.beta2);
    x.v[i] = v;
    x.root[i] = v;
  }
}

template <class Real>
PRISM_INLINE void keep_largest(Chunk<Real> x) {
#pragma omp simd
  for (int64_t i = 0; i < x.size; ++i) {
    const Real old = x.largest[i], v = x.v[i];
    x.root[i] = x.largest[i] = old != old || old > v ? old : v;  // NaN if either is
  }
}

template <class Real>
PRISM_INLINE void write(Chunk<Real> x, Numbers<Real> a) {
#pragma omp simd
  for (int64_t i = 0; i < x.size; ++i) {
    const Real u = x.m[i] / ((x.root[i] / a.root_correction2 + a.eps) * a.correction1);
    x.W[i] = std::fma(u, -a.rate, x.W[i] * a.keep);
  }
}

PRISM_CLONES void moments_of(Chunk<float> x, Numbers<float> a) { moments(x, a); }
PRISM_CLONES void moments_of(Chunk<double> x, Numbers<double> a) { moments(x, a); }
PRISM_CLONES void keep_largest_of(Chunk<float> x) { keep_largest(x); }
PRISM_CLONES void keep_largest_of(Chunk<double> x) { keep_largest(x); }
PRISM_CLONES void write_of(Chunk<float> x, Numbers<float> a) { write(x, a); }
PRISM_CLONES void write_of(Chunk<double> x, Numbers<double> a) { write(x, a); }

// The weights and gradient of a parameter, which may be narrower than the type to compute in, and its state.
template <class Real, class Weight>
struct Entry {
  const Weight* G;
  Weight* W;
  Real *master, *m, *v, *largest;  // null if there is none
  Numbers<Real> numbers;
};

// Memory of one thread for what does not lie in memory in the type to compute in.
template <class Real>
struct Buffers {
  std::array<Real, kChunk> G, W, root;
};

template <class Real, class Weight>
void step_chunk(const Entry<Real, Weight>& entry, int64_t begin, int64_t size, Buffers<Real>& buffers) {
  constexpr bool kWide = std::is_same_v<Real, Weight>;
  const auto at = [&](Real* field) { return field == nullptr ? nullptr : field + begin; };
  Chunk<Real> x{size, nullptr, nullptr, at(entry.m), at(entry.v), at(entry.largest), buffers.root.data(), nullptr};
  Weight* W = entry.W + begin;
  if constexpr (kWide) {
    x.G = entry.G + begin;
    x.W_before = x.W = W;
  } else {
    for (int64_t i = 0; i < size; ++i) {
      buffers.G[i] = static_cast<Real>(entry.G[begin + i]);
      buffers.W[i] = static_cast<Real>(W[i]);
    }
    x.G = buffers.G.data();
    x.W_before = x.W = buffers.W.data();
  }
  moments_of(x, entry.numbers);
  if (x.largest != nullptr) keep_largest_of(x);
  // ATen's root: MKL's differs from the rounded one in the last bit.
  at::from_blob(x.root, {size}, at::TensorOptions().dtype(c10::CppTypeToScalarType<Real>::value)).sqrt_();
  if constexpr (!kWide) {
    if (entry.master != nullptr) {
      Real* master = entry.master + begin;
      // A weight that is no longer its rounded master was written by the user since the last step.
      for (int64_t i = 0; i < size; ++i) master[i] = static_cast<Weight>(master[i]) == W[i] ? master[i] : x.W[i];
      x.W = master;
    }
  }
  write_of(x, entry.numbers);
  if constexpr (!kWide) {
    for (int64_t i = 0; i < size; ++i) W[i] = static_cast<Weight>(x.W[i]);
  }
}

template <class Real, class Weight>
void step_entries(const std::vector<Entry<Real, Weight>>& entries, int64_t size) {
  at::parallel_for(0, static_cast<int64_t>(entries.size()) * size, kGrain, [&](int64_t first, int64_t last) {
    const at::NoGradGuard no_grad;
    Buffers<Real> buffers;
    while (first < last) {
      const int64_t begin = first % size;
      const int64_t count = std::min({kChunk, size - begin, last - first});
      step_chunk(entries[first / size], begin, count, buffers);
      first += count;
    }
  });
}

template <class Real, class Weight>
void adam_step(const cuda::ElementwiseRule& rule, const Options& options, Bucket& bucket,
               const std::vector<DenseEntry>& active, const StepInputs& inputs) {
  constexpr auto kReal = c10::CppTypeToScalarType<Real>::value;
  const int64_t size = c10::multiply_integers(bucket.shape);
  const double lr = inputs.lr.item<double>(), decay = options.weight_decay();
  const auto real = [](double value) { return static_cast<Real>(value); };
  const Tensor scale = inputs.grad_scale;
  Numbers<Real> numbers{.sign = real(options.maximize() ? -1 : 1),
                        .grad_scale = scale.defined() ? scale.to(kReal).template item<Real>() : real(1),
                        .coupled_decay = real(decay),
                        .beta1_rest = real(1 - rule.beta1),
                        .beta2 = real(rule.beta2),
                        .beta2_rest = real(1 - rule.beta2),
                        .eps = real(rule.eps),
                        .correction1 = 1,
                        .root_correction2 = 1,
                        .keep = real(rule.couples_decay ? 1 : 1 - lr * decay),
                        .rate = real(lr),
                        .scales = scale.defined(),
                        .couples = rule.couples_decay && decay != 0};
  std::vector<int64_t> positions;
  for (const auto& entry : active) positions.push_back(entry.index);
  const Tensor indices = at::tensor(positions, at::kLong);
  const Tensor steps = bucket.state["step"].index_select(0, indices).add_(1);
  bucket.state["step"].index_copy_(0, indices, steps);
  const auto [correction1, root_correction2] = adam_corrections(steps, {rule.beta1, rule.beta2}, kReal);

  std::vector<Entry<Real, Weight>> entries;
  const auto field = [&](const char* name, int64_t position) -> Real* {
    const Tensor stack = bucket.state[name];
    return stack.defined() ? stack.mutable_data_ptr<Real>() + position * size : nullptr;
  };
  for (size_t i = 0; i < active.size(); ++i) {
    const auto& [position, G, W] = active[i];
    numbers.correction1 = correction1.template const_data_ptr<Real>()[i];
    numbers.root_correction2 = root_correction2.template const_data_ptr<Real>()[i];
    entries.push_back({G.const_data_ptr<Weight>(), W.mutable_data_ptr<Weight>(), field("master", position),
                       field("exp_avg", position), field("exp_avg_sq", position), field("max_exp_avg_sq", position),
                       numbers});
    W.unsafeGetTensorImpl()->bump_version();  // as an in-place operator does: autograd checks it
  }
  step_entries(entries, size);
}

}  // namespace

bool step_on_host(const Options& options, Bucket& bucket, const std::vector<Tensor>& parameters,
                  const std::vector<Tensor>& gradients, const StepInputs& inputs) {
  if (!bucket.device.is_cpu() || bucket.layout || c10::multiply_integers(bucket.shape) == 0) return false;
  if (inputs.apply.defined() || !inputs.lr.is_cpu()) return false;
  const auto rule = options.kernel_rule();
  const auto* elementwise = rule ? std::get_if<ElementwiseKernel>(rule.get()) : nullptr;
  if (elementwise == nullptr || elementwise->rule.kind != cuda::Elementwise::Adam) return false;
  const auto compute = compute_type(options, bucket.type);
  const bool narrow = (bucket.type == at::kBFloat16 || bucket.type == at::kHalf) && compute == at::kFloat;
  if (bucket.type != compute && !narrow) return false;
  const auto active = dense_entries(options, bucket, parameters, gradients, compute);
  if (!active) return false;
  if (active->empty()) return true;
  if (active->front().G.scalar_type() != bucket.type) return false;
  switch (bucket.type) {
    case at::kFloat:
      adam_step<float, float>(elementwise->rule, options, bucket, *active, inputs);
      break;
    case at::kDouble:
      adam_step<double, double>(elementwise->rule, options, bucket, *active, inputs);
      break;
    case at::kBFloat16:
      adam_step<float, at::BFloat16>(elementwise->rule, options, bucket, *active, inputs);
      break;
    default:
      adam_step<float, at::Half>(elementwise->rule, options, bucket, *active, inputs);
  }
  return true;
}

}  // namespace prism
