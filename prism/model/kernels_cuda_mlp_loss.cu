#include "prism/model/kernels_cuda.cuh"

namespace prism::model::cuda {
namespace {

__device__ float sigmoid(float x) { return __fdividef(1, 1 + __expf(-x)); }

// Each thread has eight adjacent columns; columns and rows are assigned as in rope_backward_kernel.
__global__ void __launch_bounds__(kThreads) swiglu_kernel(int64_t rows, int64_t mlp, const Bfloat16* ab, Bfloat16* s) {
  const int64_t row = blockIdx.x * int64_t{blockDim.y} + threadIdx.y;
  const int64_t column = 8 * (blockIdx.y * int64_t{blockDim.x} + threadIdx.x);
  if (row >= rows || column >= mlp) return;
  const Bfloat16* place = ab + row * 2 * mlp + column;
  Eight a = load8(place);
  const Eight b = load8(place + mlp);
#pragma unroll
  for (int k = 0; k < 8; ++k) a[k] *= sigmoid(a[k]) * b[k];
  store8(s + row * mlp + column, a);
}

__global__ void __launch_bounds__(kThreads) swiglu_backward_kernel(int64_t rows, int64_t mlp, const Bfloat16* ds,
                                                                   const Bfloat16* ab, Bfloat16* s, Bfloat16* dab) {
  const int64_t row = blockIdx.x * int64_t{blockDim.y} + threadIdx.y;
  const int64_t column = 8 * (blockIdx.y * int64_t{blockDim.x} + threadIdx.x);
  if (row >= rows || column >= mlp) return;
  const int64_t at_a = row * 2 * mlp + column, at_b = at_a + mlp, at_s = row * mlp + column;
  const Eight a = load8(ab + at_a), b = load8(ab + at_b), d = load8(ds + at_s);
  Eight da, db, out;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const float p = sigmoid(a[k]), silu = a[k] * p;
    da[k] = d[k] * b[k] * (p + silu * (1 - p));
    db[k] = d[k] * silu;
    out[k] = silu * b[k];
  }
  store8(dab + at_a, da);
  store8(dab + at_b, db);
  store8(s + at_s, out);
}

// The largest number so far, and the sum of exp(z − largest).
struct Sum {
  float largest, sum;
};

constexpr int kRowThreads = 512;
constexpr int kRowWarps = kRowThreads / kWarp;

// The sum over `count` adjacent lanes.
__device__ Sum join_lanes(Sum own, int count) {
  Sum all = own;
  for (int offset = count / 2; offset > 0; offset /= 2) {
    all.largest = fmaxf(all.largest, __shfl_xor_sync(~0u, all.largest, offset));
  }
  if (own.largest < all.largest) all.sum *= __expf(own.largest - all.largest);
  for (int offset = count / 2; offset > 0; offset /= 2) all.sum += __shfl_xor_sync(~0u, all.sum, offset);
  return all;
}

__device__ Sum join_block(Sum own) {
  __shared__ Sum warps[kRowWarps];
  own = join_lanes(own, kWarp);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = own;
  __syncthreads();
  return join_lanes(warps[threadIdx.x % kRowWarps], kRowWarps);
}

template <class T>
__global__ void __launch_bounds__(kRowThreads)
    cross_entropy_kernel(int vocab, T* z, const int64_t* targets, float* loss, bool gradient) {
  T* zi = z + blockIdx.x * int64_t{vocab};
  // A target outside the vocabulary would read other memory. Its loss is NaN instead, which the guard catches.
  const int64_t any = targets[blockIdx.x];
  const int target = any >= 0 && any < vocab ? static_cast<int>(any) : -1;
  const float z_target = threadIdx.x == 0 && target >= 0 ? to_float(zi[target]) : NAN;
  Sum sum = {-INFINITY, 0};
  for (int j = 8 * threadIdx.x; j < vocab; j += 8 * kRowThreads) {
    const Eight v = load8(zi + j);
    float largest = sum.largest, fresh = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) largest = fmaxf(largest, v[k]);
#pragma unroll
    for (int k = 0; k < 8; ++k) fresh += __expf(v[k] - largest);
    sum = {largest, sum.sum * __expf(sum.largest - largest) + fresh};
  }
  sum = join_block(sum);  // waits for all threads: z may change after this
  const float log_sum = sum.largest + logf(sum.sum);
  if (threadIdx.x == 0) loss[blockIdx.x] = log_sum - z_target;
  if (!gradient) return;
  for (int j = 8 * threadIdx.x; j < vocab; j += 8 * kRowThreads) {
    Eight v = load8(zi + j);
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = __expf(v[k] - log_sum) - (j + k == target ? 1.0F : 0.0F);
    store8(zi + j, v);
  }
}

__device__ Eight unpack8(uint4 bits) { return join(unpack({bits.x, bits.y}), unpack({bits.z, bits.w})); }

constexpr int kMostGroups = 6;  // of eight logits for each thread

// cross_entropy_kernel with gradient and one read of the logits, which stay in registers: `groups` times eight for each
// thread.
template <int groups>
__global__ void __launch_bounds__(kRowThreads, groups <= 3 ? 3 : 2)  // as many blocks as registers allow
    cross_entropy_gradient_kernel(int vocab, Bfloat16* z, const int64_t* targets, float* loss) {
  Bfloat16* zi = z + blockIdx.x * int64_t{vocab};
  const int64_t any = targets[blockIdx.x];
  const int target = any >= 0 && any < vocab ? static_cast<int>(any) : -1;
  const float z_target = threadIdx.x == 0 && target >= 0 ? to_float(zi[target]) : NAN;
  constexpr unsigned kNothing = 0xFF80FF80;  // −∞ twice
  uint4 bits[groups];
#pragma unroll
  for (int g = 0; g < groups; ++g) {
    const int j = 8 * static_cast<int>(threadIdx.x + kRowThreads * g);
    bits[g] = j < vocab ? *reinterpret_cast<const uint4*>(zi + j) : uint4{kNothing, kNothing, kNothing, kNothing};
  }
  Sum sum = {-INFINITY, 0};
#pragma unroll
  for (int g = 0; g < groups; ++g) {
    const Eight v = unpack8(bits[g]);
#pragma unroll
    for (int k = 0; k < 8; ++k) sum.largest = fmaxf(sum.largest, v[k]);
  }
  const float shift = sum.largest > -INFINITY ? sum.largest : 0;  // −∞ − −∞ would not be a number
#pragma unroll
  for (int g = 0; g < groups; ++g) {
    const Eight v = unpack8(bits[g]);
#pragma unroll
    for (int k = 0; k < 8; ++k) sum.sum += __expf(v[k] - shift);
  }
  sum = join_block(sum);  // waits for all threads: z may change after this
  const float log_sum = sum.largest + logf(sum.sum);
  if (threadIdx.x == 0) loss[blockIdx.x] = log_sum - z_target;
#pragma unroll
  for (int g = 0; g < groups; ++g) {
    const int j = 8 * static_cast<int>(threadIdx.x + kRowThreads * g);
    if (j >= vocab) break;
    Eight v = unpack8(bits[g]);
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = __expf(v[k] - log_sum);
    const int hit = target - j;
    if (hit >= 0 && hit < 8) {
#pragma unroll
      for (int k = 0; k < 8; ++k) v[k] -= k == hit ? 1.0F : 0.0F;
    }
    store8(zi + j, v);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) scale_kernel(int64_t groups, const T* x, const float* factor, T* y) {
  const int64_t group = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (group >= groups) return;
  const float f = *factor;
  Eight v = load8(x + 8 * group);
#pragma unroll
  for (int k = 0; k < 8; ++k) v[k] *= f;
  store8(y + 8 * group, v);
}

template <class T>
int launch_scale(Target target, int64_t count, const T* x, const float* factor, T* y) {
  return on_device(target, [&](cudaStream_t stream) {
    scale_kernel<<<blocks_for(count / 8, kThreads), kThreads, 0, stream>>>(count / 8, x, factor, y);
  });
}

template <class T>
int launch_cross_entropy(Target target, int64_t rows, int64_t vocab, T* z, const int64_t* targets, float* loss,
                         bool gradient) {
  return on_device(target, [&](cudaStream_t stream) {
    cross_entropy_kernel<<<static_cast<unsigned>(rows), kRowThreads, 0, stream>>>(static_cast<int>(vocab), z, targets,
                                                                                  loss, gradient);
  });
}

// Calls function.operator()<groups>() for 1 ≤ groups ≤ kMostGroups.
template <int groups = 1, class Function>
void with_groups(int wanted, const Function& function) {
  if constexpr (groups < kMostGroups) {
    if (wanted > groups) return with_groups<groups + 1>(wanted, function);
  }
  function.template operator()<groups>();
}

int launch_cross_entropy_gradient(Target target, int64_t rows, int64_t vocab, Bfloat16* z, const int64_t* targets,
                                  float* loss) {
  return on_device(target, [&](cudaStream_t stream) {
    with_groups(static_cast<int>(blocks_for(vocab, 8 * kRowThreads)), [&]<int groups>() {
      cross_entropy_gradient_kernel<groups>
          <<<static_cast<unsigned>(rows), kRowThreads, 0, stream>>>(static_cast<int>(vocab), z, targets, loss);
    });
  });
}

}  // namespace

int swiglu(Target target, int64_t rows, int64_t mlp, const Bfloat16* ab, Bfloat16* s) {
  const dim3 block = block_for(mlp / 8);
  const dim3 grid(blocks_for(rows, block.y), blocks_for(mlp / 8, block.x));
  return on_device(target, [&](cudaStream_t stream) { swiglu_kernel<<<grid, block, 0, stream>>>(rows, mlp, ab, s); });
}

int swiglu_backward(Target target, int64_t rows, int64_t mlp, const Bfloat16* ds, const Bfloat16* ab, Bfloat16* s,
                    Bfloat16* dab) {
  const dim3 block = block_for(mlp / 8);
  const dim3 grid(blocks_for(rows, block.y), blocks_for(mlp / 8, block.x));
  return on_device(target, [&](cudaStream_t stream) {
    swiglu_backward_kernel<<<grid, block, 0, stream>>>(rows, mlp, ds, ab, s, dab);
  });
}

int cross_entropy(Target target, int64_t rows, int64_t vocab, Bfloat16* z, const int64_t* targets, float* loss,
                  bool gradient) {
  const bool fits_registers = vocab <= int64_t{kMostGroups} * 8 * kRowThreads;
  if (gradient && fits_registers) return launch_cross_entropy_gradient(target, rows, vocab, z, targets, loss);
  return launch_cross_entropy(target, rows, vocab, z, targets, loss, gradient);
}

int cross_entropy(Target target, int64_t rows, int64_t vocab, float* z, const int64_t* targets, float* loss,
                  bool gradient) {
  return launch_cross_entropy(target, rows, vocab, z, targets, loss, gradient);
}

int scale(Target target, int64_t count, const Bfloat16* x, const float* factor, Bfloat16* y) {
  return launch_scale(target, count, x, factor, y);
}

int scale(Target target, int64_t count, const float* x, const float* factor, float* y) {
  return launch_scale(target, count, x, factor, y);
}

}  // namespace prism::model::cuda
