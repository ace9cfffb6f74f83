// Adam, AdaGrad and RMSprop over many parameters at once: one read and one write of everything.

#include "prism/cuda/blocks.cuh"
#include "prism/cuda/signal.h"
#include "prism/cuda/weight_update.cuh"

namespace prism::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = 4;
constexpr int kBlock = kThreads * kPerThread * 4;  // elements of one block
constexpr int kMaxVectors = 128;                   // of one launch

struct Launch {
  Vector vectors[kMaxVectors];
  int first_block[kMaxVectors];
  int count;
  ElementwiseRule rule;
  Rates rates;
  const float* grad_scale;
  bool maximize;
};

// The values that all elements of one parameter share.
struct Common {
  float grad_factor, coupled_decay;
  DecayAndRate factors;
  float correction1, correction2;  // Adam: 1 − β₁ᵗ and √(1 − β₂ᵗ); AdaGrad: 1 + (t−1)·lr_decay in the first
};

__device__ Common read_common(const Launch& launch, const Vector& vector) {
  Common common{launch.maximize ? -1.f : 1.f, 0, decay_and_rate(launch.rates), 1, 1};
  if (launch.grad_scale != nullptr) common.grad_factor /= *launch.grad_scale;
  if (launch.rule.couples_decay) {
    common.coupled_decay = launch.rates.weight_decay;
    common.factors.keep = 1;
  }
  if (launch.rule.kind == Elementwise::Adam) {
    const double t = *vector.step;
    common.correction1 = static_cast<float>(1 - pow(launch.rule.beta1, t));
    common.correction2 = static_cast<float>(sqrt(1 - pow(launch.rule.beta2, t)));
  }
  if (launch.rule.kind == Elementwise::AdaGrad)
    common.correction1 = static_cast<float>(1 + (*vector.step - 1.) * launch.rule.lr_decay);
  return common;
}

// Returns U for one element and advances its state.
template <Elementwise Kind>
__device__ float direction(float g, float (&state)[3], const bool (&has)[3], const ElementwiseRule& rule,
                           const Common& common) {
  const auto beta1 = static_cast<float>(rule.beta1), beta2 = static_cast<float>(rule.beta2),
             eps = static_cast<float>(rule.eps);
  const auto rest1 = static_cast<float>(1 - rule.beta1), rest2 = static_cast<float>(1 - rule.beta2);
  if constexpr (Kind == Elementwise::Adam) {
    auto& [m, v, largest] = state;
    m = fmaf(rest1, g - m, m);
    v = fmaf(rest2 * g, g, beta2 * v);
    if (has[2]) largest = fmaxf(largest, v);
    return m / ((sqrtf(has[2] ? largest : v) / common.correction2 + eps) * common.correction1);
  } else if constexpr (Kind == Elementwise::AdaGrad) {
    state[0] = fmaf(g, g, state[0]);
    return g / (sqrtf(state[0]) + eps) / common.correction1;
  } else {
    auto& [v, mean, velocity] = state;
    v = fmaf(rest2 * g, g, beta2 * v);
    if (has[1]) mean = fmaf(rest2, g - mean, mean);
    const float X = g / (sqrtf(has[1] ? fmaxf(fmaf(-mean, mean, v), 0.f) : v) + eps);
    if (!has[2]) return X;
    return velocity = fmaf(beta1, velocity, X);
  }
}

template <class T, Elementwise Kind, int N>
__device__ void step_elements(const Launch& launch, const Vector& vector, const Common& common, int64_t i) {
  struct alignas(sizeof(T) * N) Reals {
    T x[N];
  };
  struct alignas(sizeof(float) * N) Floats {
    float x[N];
  };
  const bool has[3] = {vector.state[0] != nullptr, vector.state[1] != nullptr, vector.state[2] != nullptr};
  auto* W = static_cast<T*>(vector.W);
  const Reals g = *reinterpret_cast<const Reals*>(static_cast<const T*>(vector.G) + i);
  Reals w = *reinterpret_cast<const Reals*>(W + i);
  Floats master, state[3];
  if (vector.master != nullptr) master = *reinterpret_cast<const Floats*>(vector.master + i);
#pragma unroll
  for (int s = 0; s < 3; ++s) {
    if (has[s]) state[s] = *reinterpret_cast<const Floats*>(vector.state[s] + i);
  }
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const float rounded = to_float(w.x[k]);
    float now[3] = {state[0].x[k], state[1].x[k], state[2].x[k]};
    const float gradient = fmaf(common.coupled_decay, rounded, to_float(g.x[k]) * common.grad_factor);
    const float U = direction<Kind>(gradient, now, has, launch.rule, common);
    master.x[k] = updated(vector.master != nullptr ? current_master(master.x[k], w.x[k]) : rounded, U, common.factors);
    w.x[k] = from_float<T>(master.x[k]);
    for (int s = 0; s < 3; ++s) state[s].x[k] = now[s];
  }
  *reinterpret_cast<Reals*>(W + i) = w;
  if (vector.master != nullptr) *reinterpret_cast<Floats*>(vector.master + i) = master;
#pragma unroll
  for (int s = 0; s < 3; ++s) {
    if (has[s]) *reinterpret_cast<Floats*>(vector.state[s] + i) = state[s];
  }
}

template <class T, Elementwise Kind>
__global__ void __launch_bounds__(kThreads) elementwise_kernel(const __grid_constant__ Launch launch) {
  if (!applies(launch.rates.apply)) return;
  const int index =
      array_of_block(launch.count, static_cast<int>(blockIdx.x), [&](int i) { return launch.first_block[i]; });
  const Vector& vector = launch.vectors[index];
  __shared__ Common shared;
  if (threadIdx.x == 0) shared = read_common(launch, vector);
  __syncthreads();
  const Common common = shared;

  uintptr_t addresses = reinterpret_cast<uintptr_t>(vector.G) | reinterpret_cast<uintptr_t>(vector.W) |
                        reinterpret_cast<uintptr_t>(vector.master);
  for (const float* state : vector.state) addresses |= reinterpret_cast<uintptr_t>(state);
  const bool fours = addresses % 16 == 0;
  const int64_t begin = static_cast<int64_t>(blockIdx.x - launch.first_block[index]) * kBlock;
  const int64_t end = min(begin + kBlock, vector.size);
  for (int64_t i = begin + threadIdx.x * kPerThread; i < end; i += kThreads * kPerThread) {
    if (fours && i + kPerThread <= end) {
      step_elements<T, Kind, kPerThread>(launch, vector, common, i);
    } else {
      for (int64_t k = i; k < min(i + kPerThread, end); ++k) step_elements<T, Kind, 1>(launch, vector, common, k);
    }
  }
}

template <class T>
auto kernel_for(Elementwise kind) {
  switch (kind) {
    case Elementwise::AdaGrad:
      return elementwise_kernel<T, Elementwise::AdaGrad>;
    case Elementwise::RMSprop:
      return elementwise_kernel<T, Elementwise::RMSprop>;
    case Elementwise::Adam:
      break;
  }
  return elementwise_kernel<T, Elementwise::Adam>;
}

auto kernel_for(Elementwise kind, Real type) {
  switch (type) {
    case Real::Float16:
      return kernel_for<__half>(kind);
    case Real::BFloat16:
      return kernel_for<__nv_bfloat16>(kind);
    case Real::Float32:
      break;
  }
  return kernel_for<float>(kind);
}

}  // namespace

int elementwise_step(const ElementwiseRule& rule, const StepScalars& scalars, const std::vector<Vector>& vectors,
                     int /*device*/, void* stream) {
  auto* cuda_stream = static_cast<cudaStream_t>(stream);
  std::vector<float*> counters;
  for (const auto& vector : vectors) {
    if (vector.step != nullptr) counters.push_back(vector.step);
  }
  cudaError_t error = launch_count(counters.data(), static_cast<int>(counters.size()), scalars.apply, cuda_stream);
  size_t taken = 0;
  while (taken < vectors.size() && error == cudaSuccess) {
    Launch launch{};
    launch.rule = rule;
    launch.rates = {scalars.lr, scalars.apply, static_cast<float>(scalars.weight_decay)};
    launch.grad_scale = scalars.grad_scale;
    launch.maximize = scalars.maximize;
    const Real type = vectors[taken].weight;
    int blocks = 0;
    for (; taken < vectors.size() && launch.count < kMaxVectors && vectors[taken].weight == type; ++taken) {
      launch.first_block[launch.count] = blocks;
      launch.vectors[launch.count++] = vectors[taken];
      blocks += static_cast<int>((vectors[taken].size + kBlock - 1) / kBlock);
    }
    if (blocks == 0) continue;
    kernel_for(rule.kind, type)<<<blocks, kThreads, 0, cuda_stream>>>(launch);
    error = cudaGetLastError();
  }
  return error;
}

}  // namespace prism::cuda
