// The elementwise part of the spectral step. The powers of two of the operands depend on the largest magnitudes of the
// whole matrix. One pass over G and M takes powers guessed from a sample, and measures the matrix; a second pass writes
// the operands again where the guess was wrong. The result does not depend on the sample.

#include "prism/cuda/blocks.cuh"
#include "prism/cuda/eights.cuh"
#include "prism/cuda/signal.cuh"

namespace prism::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kSampleElements = 4096;  // of a matrix
constexpr float kExcess = 1.4f;        // typical ratio of the largest magnitude of a matrix to that of its sample
constexpr int kRewriteBlocks = 1024;

// Programmatic dependent launch: a kernel may begin before the previous one has ended, and must wait before it reads or
// writes. Devices before compute capability 9.0 do not have it.
__device__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ int64_t size_of(const SignalMatrix& matrix) { return static_cast<int64_t>(matrix.m) * matrix.n; }

__device__ int matrix_of_block(const SignalLaunch& launch) {
  return array_of_block(launch.count, static_cast<int>(blockIdx.x),
                        [&](int i) { return launch.matrices[i].first_block; });
}

// Returns true if elements can be taken eight at a time: all pointers are aligned, and rows have multiples of eight.
template <class T>
__device__ bool takes_eights(const SignalMatrix& matrix) {
  return matrix.n % kVector == 0 && is_aligned(matrix.G) && is_aligned(matrix.M);
}

struct Tally {
  Measure total{0, 0, 0, 0};
  __device__ void add(const Signal& signal) {
    total.T_largest = fmaxf(total.T_largest, fabsf(signal.T));
    total.D_largest = fmaxf(total.D_largest, fabsf(signal.D));
    total.T_squares = fma(static_cast<double>(signal.T), static_cast<double>(signal.T), total.T_squares);
    total.D_squares = fma(static_cast<double>(signal.D), static_cast<double>(signal.D), total.D_squares);
  }
};

__device__ void merge(Measure& a, const Measure& b) {
  a.T_largest = fmaxf(a.T_largest, b.T_largest);
  a.D_largest = fmaxf(a.D_largest, b.D_largest);
  a.T_squares += b.T_squares;
  a.D_squares += b.D_squares;
}

__device__ Measure merged(Measure mine) { return merged_in_block<kThreads>(mine, merge); }

enum class Pass { Measure, Advance, Rewrite };

// Makes a pass over `count` elements of a matrix from `begin` on, or to its end. Measure and Advance return the measure
// of these elements, in thread 0. Advance writes M, T and D; Rewrite writes T and D again, from the advanced M.
template <Pass kPass, class Gradient>
__device__ Measure pass_over(const SignalLaunch& launch, int index, int64_t begin, int count) {
  const SignalMatrix& matrix = launch.matrices[index];
  const SignalRule rule = read_rule(launch.settings, matrix.step);
  const auto* G = static_cast<const Gradient*>(matrix.G);
  constexpr bool kWrites = kPass != Pass::Measure, kTallies = kPass != Pass::Rewrite;
  const bool writes_M = kPass == Pass::Advance && applies(launch.settings.apply);
  const float T_factor = kWrites ? launch.factors.T[index] : 0;
  const float D_factor = kWrites && launch.settings.noisy ? launch.factors.D[index] : 0;
  // Between refreshes of an average, D is not read.
  const bool writes_D = kWrites && matrix.D != nullptr && !(launch.settings.averaged && D_factor == 0);
  const int64_t end = min(begin + count, size_of(matrix));
  Tally tally;
  const auto signal_of = [&](float g, float m) {
    if constexpr (!kTallies) return rule.after(g, m);
    const Signal signal = rule(g, m);
    tally.add(signal);
    return signal;
  };
  if (takes_eights<Gradient>(matrix)) {
#pragma unroll 1  // 4.0 TB/s on an H200; 3.7 if unrolled twice
    for (int64_t i = begin + threadIdx.x * kVector; i < end; i += kThreads * kVector) {
      float g[kVector], m[kVector], t[kVector], d[kVector];
      load_eight(g, G + i);
      load_eight(m, matrix.M + i);
#pragma unroll
      for (int k = 0; k < kVector; ++k) {
        const Signal signal = signal_of(g[k], m[k]);
        m[k] = signal.M;
        t[k] = signal.T * T_factor;
        d[k] = signal.D * D_factor;
      }
      if (writes_M) store_eight(matrix.M + i, m);
      if (kWrites) store_eight(matrix.T + i, t);
      if (writes_D) store_eight(matrix.D + i, d);
    }
  } else {
    for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
      const Signal signal = signal_of(to_float(G[i]), matrix.M[i]);
      const int64_t target = i / matrix.n * matrix.pitch + i % matrix.n;
      if (writes_M) matrix.M[i] = signal.M;
      if (kWrites) matrix.T[target] = __float2half_rn(signal.T * T_factor);
      if (writes_D) matrix.D[target] = __float2half_rn(signal.D * D_factor);
    }
  }
  return kTallies ? merged(tally.total) : tally.total;
}

// The same over the elements of one block.
template <Pass kPass, class Gradient>
__device__ Measure pass_over(const SignalLaunch& launch, int index) {
  const auto block = static_cast<int64_t>(blockIdx.x) - launch.matrices[index].first_block;
  return pass_over<kPass, Gradient>(launch, index, block * kBlockElements, kBlockElements);
}

template <class T>
__global__ void __launch_bounds__(kThreads) measure_kernel(const __grid_constant__ SignalLaunch launch) {
  const Measure total = pass_over<Pass::Measure, T>(launch, matrix_of_block(launch));
  if (threadIdx.x == 0) launch.measures[blockIdx.x] = total;
}

template <class T>
__global__ void __launch_bounds__(kThreads) advance_kernel(const __grid_constant__ SignalLaunch launch) {
  const int index = matrix_of_block(launch);
  let_next_begin();
  wait_for_previous();
  const Measure total = pass_over<Pass::Advance, T>(launch, index);
  if (threadIdx.x == 0 && launch.measures != nullptr) launch.measures[blockIdx.x] = total;
}

template <class T>
__global__ void __launch_bounds__(kThreads) rewrite_kernel(const __grid_constant__ SignalLaunch launch) {
  static_assert(kMaxMatrices <= kThreads);
  let_next_begin();
  wait_for_previous();
  const auto thread = static_cast<int>(threadIdx.x);
  if (!__syncthreads_or(thread < launch.count && launch.misjudged[thread])) return;
  constexpr int kPiece = kThreads * kVector;
  int64_t piece = blockIdx.x;  // this block's next piece, counted from the matrix's first
  for (int index = 0; index < launch.count; ++index) {
    if (!launch.misjudged[index]) continue;
    const int64_t pieces = (size_of(launch.matrices[index]) + kPiece - 1) / kPiece;
    for (; piece < pieces; piece += gridDim.x) pass_over<Pass::Rewrite, T>(launch, index, piece * kPiece, kPiece);
    piece -= pieces;
  }
}

// Measures the diagonal, which holds the largest entry of a positive semidefinite matrix. Valid in thread 0.
__device__ Measure diagonal_of(const float* C, int n) {
  Measure mine{0, 0, 0, 0};
  for (int i = threadIdx.x; i < n; i += kThreads) {
    const float x = C[static_cast<int64_t>(i) * n + i];
    merge(mine, {fabsf(x), 0, x, 0});
  }
  return merged(mine);
}

// The sums over the blocks of one matrix. Valid in thread 0.
__device__ Measure sums_of(const SignalLaunch& launch, int index) {
  if (launch.sums != nullptr) {
    const double* sums = launch.sums + index * kSums;
    return {static_cast<float>(sums[0]), static_cast<float>(sums[1]), sums[2], sums[3]};
  }
  const int last = index + 1 < launch.count ? launch.matrices[index + 1].first_block : launch.blocks;
  Measure mine{0, 0, 0, 0};
  for (int b = launch.matrices[index].first_block + threadIdx.x; b < last; b += kThreads)
    merge(mine, launch.measures[b]);
  return merged(mine);
}

__global__ void __launch_bounds__(kThreads) sums_kernel(const __grid_constant__ SignalLaunch launch, double* sums) {
  const Measure total = sums_of(launch, blockIdx.x);
  if (threadIdx.x != 0) return;
  sums += blockIdx.x * kSums;
  sums[0] = total.T_largest;
  sums[1] = total.D_largest;
  sums[2] = total.T_squares;
  sums[3] = total.D_squares;
}

// The powers of two of the operands; that of D includes γ where it is not averaged, and is 0 between refreshes.
struct OperandFactors {
  double T, D;
};

__device__ OperandFactors operand_factors(const SignalLaunch& launch, const SignalMatrix& matrix, const Measure& sums,
                                          double gamma) {
  if (launch.settings.averaged)
    return {operand_power(sums.T_largest),
            is_refreshed(launch.settings, *matrix.step) ? operand_power(sums.D_largest) : 0};
  if (!launch.settings.noisy) return {operand_power(sums.T_largest), 0};
  const double power = operand_power(fmax(static_cast<double>(sums.T_largest), gamma * sums.D_largest));
  return {power, fmin(gamma * power, 1e38)};
}

__device__ void write_operand_factors(const SignalLaunch& launch, int index, const Measure& sums) {
  const SignalMatrix& matrix = launch.matrices[index];
  const double gamma = gamma_of(launch.settings, matrix.gamma_scale, matrix.gamma_factor);
  const OperandFactors powers = operand_factors(launch, matrix, sums, gamma);
  launch.factors.T[index] = static_cast<float>(powers.T);
  launch.factors.D[index] = static_cast<float>(powers.D);
}

__global__ void operand_factor_kernel(const __grid_constant__ SignalLaunch launch) {
  const int index = static_cast<int>(threadIdx.x);
  if (index < launch.count) write_operand_factors(launch, index, sums_of(launch, index));
}

// Returns element s of the sample of a matrix, or an index past its end. The sample is runs of eight elements, one in each
// of equal ranges. Knuth's multiplicative hash places the run in its range, so that runs begin in different columns.
__device__ int64_t sampled_element(uint32_t s, int64_t size) {
  const uint32_t run = s / kVector, eights = static_cast<uint32_t>((size + kVector - 1) / kVector);
  const uint32_t range = max(1U, eights / (kSampleElements / kVector));
  return (static_cast<int64_t>(run) * range + __umulhi(run * 2654435761U, range)) * kVector + s % kVector;
}

// Guesses the factors of the operands of one matrix.
template <class T>
__global__ void __launch_bounds__(kThreads) sample_kernel(const __grid_constant__ SignalLaunch launch) {
  let_next_begin();
  const auto index = static_cast<int>(blockIdx.x);
  const SignalMatrix& matrix = launch.matrices[index];
  const SignalRule rule = read_rule(launch.settings, matrix.step);
  const auto* G = static_cast<const T*>(matrix.G);
  const int64_t size = size_of(matrix);
  Measure mine{0, 0, 0, 0};
#pragma unroll
  for (uint32_t s = 0; s < kSampleElements; s += kThreads) {
    const int64_t i = min(sampled_element(s + threadIdx.x, size), size - 1);
    const Signal signal = rule(to_float(G[i]), matrix.M[i]);
    merge(mine, {fabsf(signal.T), fabsf(signal.D), 0, 0});
  }
  Measure total = merged(mine);
  if (threadIdx.x != 0) return;
  if (size > kSampleElements) total.T_largest *= kExcess, total.D_largest *= kExcess;
  write_operand_factors(launch, index, total);
}

// Computes the factors of one matrix from the sums over its blocks.
__global__ void __launch_bounds__(kThreads) factor_kernel(const __grid_constant__ SignalLaunch launch) {
  const int index = blockIdx.x;
  const SignalMatrix& matrix = launch.matrices[index];
  let_next_begin();
  wait_for_previous();
  for (int i = index * kThreads + static_cast<int>(threadIdx.x); i < launch.counter_count; i += launch.count * kThreads)
    launch.counters[i] = 0;
  const Measure sums = sums_of(launch, index);
  Measure diagonal{0, 0, 0, 0};
  if (launch.settings.averaged) {
    __syncthreads();
    diagonal = diagonal_of(matrix.C, matrix.k);
  }
  if (threadIdx.x != 0) return;

  const SignalFactors& factors = launch.factors;
  const double gamma = gamma_of(launch.settings, matrix.gamma_scale, matrix.gamma_factor);
  const auto [T_power, D_power] = operand_factors(launch, matrix, sums, gamma);
  double trace = sums.T_squares;  // of TᵀT + γ²·…
  if (launch.settings.averaged) {
    const Average average = next_average(launch.settings, *matrix.step, *matrix.C_scale, diagonal.T_largest,
                                         static_cast<double>(sums.D_largest));
    const double size = average.scale * average.scale;
    const double C_trace =
        (average.shrink * diagonal.T_squares * size + average.added * sums.D_squares) * average.correction;
    trace += gamma * gamma * C_trace;
    factors.mean_alpha[index] = average.is_due ? static_cast<float>(average.added / (D_power * D_power * size)) : 0;
    factors.mean_beta[index] = static_cast<float>(average.shrink);
    factors.gram_beta[index] = trace > 0 ? static_cast<float>(gamma * gamma * average.correction * size / trace) : 0;
    if (applies(launch.settings.apply)) *matrix.C_scale = static_cast<float>(average.scale);
  } else if (launch.settings.noisy) {
    trace += gamma * gamma * sums.D_squares;
  }
  trace *= 1 + launch.settings.damping;
  const float T_factor = static_cast<float>(T_power), D_factor = static_cast<float>(D_power);
  if (launch.sums == nullptr) launch.misjudged[index] = factors.T[index] != T_factor || factors.D[index] != D_factor;
  factors.T[index] = T_factor;
  factors.D[index] = D_factor;
  factors.gram_alpha[index] = trace > 0 ? static_cast<float>(1 / (trace * T_power * T_power)) : 0;
  factors.update[index] = trace > 0 ? static_cast<float>(1 / (sqrt(trace) * T_power)) : 0;
}

// Step counters, which travel as the parameters of a kernel.
template <int Capacity>
struct Steps {
  float* counters[Capacity];
};

template <int Capacity>
__global__ void count_kernel(const __grid_constant__ Steps<Capacity> steps, int count, const bool* apply) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count && applies(apply)) *steps.counters[i] += 1;
}

template <int Capacity>
cudaError_t add_one(float* const* steps, int count, const bool* apply, cudaStream_t stream) {
  for (int first = 0; first < count; first += Capacity) {
    Steps<Capacity> some{};
    const int taken = min(count - first, Capacity);
    for (int i = 0; i < taken; ++i) some.counters[i] = steps[first + i];
    count_kernel<Capacity><<<(taken + kThreads - 1) / kThreads, kThreads, 0, stream>>>(some, taken, apply);
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

template <template <class> class Kernel>
auto for_type(Real type) {
  switch (type) {
    case Real::Float16:
      return Kernel<__half>::function;
    case Real::BFloat16:
      return Kernel<__nv_bfloat16>::function;
    case Real::Float32:
      break;
  }
  return Kernel<float>::function;
}
template <class T>
struct MeasureKernel {
  static constexpr auto function = measure_kernel<T>;
};
template <class T>
struct SampleKernel {
  static constexpr auto function = sample_kernel<T>;
};
template <class T>
struct AdvanceKernel {
  static constexpr auto function = advance_kernel<T>;
};
template <class T>
struct RewriteKernel {
  static constexpr auto function = rewrite_kernel<T>;
};

// Launches a kernel that waits for the previous one itself, if it was compiled for the device.
cudaError_t launch_closely(const auto& kernel, int blocks, const SignalLaunch& launch, int device,
                           cudaStream_t stream) {
  int major = 0;
  const cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute closely{};
  closely.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  closely.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  config.attrs = &closely;
  config.numAttrs = major == 9 ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, launch);
}

}  // namespace

cudaError_t launch_operands(const SignalLaunch& launch, int device, cudaStream_t stream) {
  for_type<SampleKernel>(launch.gradient)<<<launch.count, kThreads, 0, stream>>>(launch);
  cudaError_t error = cudaGetLastError();
  const auto then = [&](const auto& kernel, int blocks) {
    if (error == cudaSuccess) error = launch_closely(kernel, blocks, launch, device, stream);
  };
  then(for_type<AdvanceKernel>(launch.gradient), launch.blocks);
  then(factor_kernel, launch.count);
  then(for_type<RewriteKernel>(launch.gradient), min(launch.blocks, kRewriteBlocks));
  return error;
}

cudaError_t launch_sums(const SignalLaunch& launch, double* sums, cudaStream_t stream) {
  for_type<MeasureKernel>(launch.gradient)<<<launch.blocks, kThreads, 0, stream>>>(launch);
  sums_kernel<<<launch.count, kThreads, 0, stream>>>(launch, sums);
  return cudaGetLastError();
}

cudaError_t launch_part_operands(const SignalLaunch& launch, cudaStream_t stream) {
  operand_factor_kernel<<<1, kMaxMatrices, 0, stream>>>(launch);
  for_type<AdvanceKernel>(launch.gradient)<<<launch.blocks, kThreads, 0, stream>>>(launch);
  return cudaGetLastError();
}

cudaError_t launch_factors(const SignalLaunch& launch, cudaStream_t stream) {
  factor_kernel<<<launch.count, kThreads, 0, stream>>>(launch);
  return cudaGetLastError();
}

cudaError_t launch_count(float* const* steps, int count, const bool* apply, cudaStream_t stream) {
  constexpr int kFew = 128, kMany = 2048;
  return count <= kFew ? add_one<kFew>(steps, count, apply, stream) : add_one<kMany>(steps, count, apply, stream);
}

}  // namespace prism::cuda
