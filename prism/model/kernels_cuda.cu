#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "prism/model/kernels_cuda.h"

namespace prism::model::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 8;  // of a block that has a row for each warp
constexpr int kThreads = kWarp * kWarps;
constexpr int kPartBlocks = 792;  // at most; six for each of an H200's multiprocessors, in whole waves of 1, 2 or 3

// Four neighbours: 8 bytes of bfloat16, 16 of float.
__device__ float4 load(const float* p) { return *reinterpret_cast<const float4*>(p); }
__device__ void store(float* p, float4 v) { *reinterpret_cast<float4*>(p) = v; }

__device__ float4 unpack(uint2 bits) {
  const float2 a = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&bits.x));
  const float2 b = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&bits.y));
  return {a.x, a.y, b.x, b.y};
}

__device__ uint2 pack(float4 v) {
  const __nv_bfloat162 a = __floats2bfloat162_rn(v.x, v.y), b = __floats2bfloat162_rn(v.z, v.w);
  return {*reinterpret_cast<const unsigned*>(&a), *reinterpret_cast<const unsigned*>(&b)};
}

__device__ float4 load(const Bfloat16* p) { return unpack(*reinterpret_cast<const uint2*>(p)); }
__device__ void store(Bfloat16* p, float4 v) { *reinterpret_cast<uint2*>(p) = pack(v); }

// Eight neighbours: 16 bytes of bfloat16.
struct Eight {
  float v[8];
  __device__ float& operator[](int i) { return v[i]; }
  __device__ float operator[](int i) const { return v[i]; }
};

__device__ Eight join(float4 a, float4 b) { return {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}; }
__device__ Eight load8(const float* p) { return join(load(p), load(p + 4)); }

__device__ Eight load8(const Bfloat16* p) {
  const uint4 bits = *reinterpret_cast<const uint4*>(p);
  return join(unpack({bits.x, bits.y}), unpack({bits.z, bits.w}));
}

__device__ void store8(float* p, const Eight& v) {
  store(p, {v[0], v[1], v[2], v[3]});
  store(p + 4, {v[4], v[5], v[6], v[7]});
}

__device__ void store8(Bfloat16* p, const Eight& v) {
  const uint2 a = pack({v[0], v[1], v[2], v[3]}), b = pack({v[4], v[5], v[6], v[7]});
  *reinterpret_cast<uint4*>(p) = {a.x, a.y, b.x, b.y};
}

__device__ float to_float(float x) { return x; }
__device__ float to_float(Bfloat16 x) { return __uint_as_float(unsigned{x} << 16); }

__device__ float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
__device__ float4 operator*(float4 a, float4 b) { return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w}; }
__device__ float4 operator*(float4 a, float s) { return {a.x * s, a.y * s, a.z * s, a.w * s}; }
__device__ float4 operator+(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }
__device__ float4 operator-(float4 a, float4 b) { return {a.x - b.x, a.y - b.y, a.z - b.z, a.w - b.w}; }

__device__ float warp_sum(float x) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
  return x;
}

// A row of 128·V numbers is held by one warp: lane l has V groups of four, at 4·(l + 32·i).
template <int V>
__global__ void __launch_bounds__(kThreads) rms_norm_kernel(int64_t rows, Norm k) {
  constexpr int kWidth = 128 * V;
  const int lane = threadIdx.x % kWarp;
  const int64_t row = blockIdx.x * int64_t{kWarps} + threadIdx.x / kWarp;
  if (row >= rows) return;
  float4 z[V];
#pragma unroll
  for (int i = 0; i < V; ++i) z[i] = load(k.x + row * kWidth + 4 * (lane + kWarp * i));
  if (k.y != nullptr) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const int64_t at = row * kWidth + 4 * (lane + kWarp * i);
      z[i] = z[i] + load(k.y + at);
      store(k.z + at, z[i]);
    }
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < V; ++i) sum += dot(z[i], z[i]);
  const float ri = rsqrtf(warp_sum(sum) / kWidth + k.eps);
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const int column = 4 * (lane + kWarp * i);
    store(k.n + row * kWidth + column, z[i] * ri * load(k.g + column));
  }
  if (lane == 0) k.r[row] = ri;
}

constexpr int norm_blocks(int V) { return V <= 4 ? 3 : V <= 6 ? 2 : 1; }  // for whose registers there is room at once

template <int V>
__global__ void __launch_bounds__(kThreads, norm_blocks(V)) rms_norm_backward_kernel(int64_t rows, NormBackward k) {
  constexpr int kWidth = 128 * V;
  __shared__ __align__(16) float block_dg[kWidth];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  float4 dg[V] = {};
  for (int64_t row = blockIdx.x * int64_t{kWarps} + warp; row < rows; row += gridDim.x * int64_t{kWarps}) {
    const float ri = k.r[row];
    float4 z[V], d[V], past[V] = {};
    if (k.a != nullptr) {
#pragma unroll
      for (int i = 0; i < V; ++i) past[i] = load(k.a + row * kWidth + 4 * (lane + kWarp * i));
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const int column = 4 * (lane + kWarp * i);
      z[i] = load(k.z + row * kWidth + column);
      d[i] = load(k.dn + row * kWidth + column);
      dg[i] = dg[i] + d[i] * z[i] * ri;
      d[i] = d[i] * load(k.g + column);
      sum += dot(d[i], z[i]);
    }
    const float c = warp_sum(sum) * ri * ri * ri / kWidth;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const int64_t at = row * kWidth + 4 * (lane + kWarp * i);
      const float4 dz = d[i] * ri - z[i] * c + past[i];
      store(k.dz + at, dz);
      if (k.low != nullptr) store(k.low + at, dz);
    }
  }
  for (int turn = 0; turn < kWarps; ++turn) {  // one warp after the other: a fixed order
    if (warp == turn) {
#pragma unroll
      for (int i = 0; i < V; ++i) {
        float* place = block_dg + 4 * (lane + kWarp * i);
        store(place, turn == 0 ? dg[i] : load(place) + dg[i]);
      }
    }
    __syncthreads();
  }
  for (int j = threadIdx.x; j < kWidth; j += kThreads) k.parts[blockIdx.x * int64_t{kWidth} + j] = block_dg[j];
}

__global__ void rope_kernel(Heads h, unsigned items, Bfloat16* qkv) {
  const unsigned item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= items) return;
  const int half = static_cast<int>(h.head_dim) / 2, groups = half / 4, turned = static_cast<int>(h.heads + h.kv_heads);
  const int i = 4 * static_cast<int>(item % groups), head = static_cast<int>(item / groups % turned);
  const int64_t row = item / groups / turned;
  Bfloat16* place = qkv + (row * (turned + h.kv_heads) + head) * h.head_dim + i;
  const int64_t at = row % h.T * half + i;
  const float4 a = load(place), b = load(place + half), c = load(h.cosine + at), s = load(h.sine + at);
  store(place, a * c - b * s);
  store(place + half, b * c + a * s);
}

// A thread has the same eight pairs of columns in each of its rows: threadIdx.x (and blockIdx.y) say which, rows are
// those of threadIdx.y and blockIdx.x.
__global__ void __launch_bounds__(kThreads, 3)
    rope_backward_kernel(Heads h, HeadGradients gradients, Bfloat16* dqkv, float* parts) {
  __shared__ __align__(16) float block_sums[kThreads][16];
  const int half = static_cast<int>(h.head_dim) / 2, groups = half / 8;
  const int all = static_cast<int>(h.heads + 2 * h.kv_heads), turned = all - static_cast<int>(h.kv_heads);
  const int item = blockIdx.y * blockDim.x + threadIdx.x, head = item / groups, i = 8 * (item % groups);
  const int64_t columns = all * h.head_dim, column = head * h.head_dim + i;
  Eight a_sum = {}, b_sum = {};
  if (head < all) {
    const HeadsView from = head < h.heads ? gradients.dq : head < turned ? gradients.dk : gradients.dv;
    const int64_t local = head < h.heads ? head : head < turned ? head - h.heads : head - turned;
    const unsigned rows = static_cast<unsigned>(h.B * h.T), T = static_cast<unsigned>(h.T);
    for (unsigned row = blockIdx.x * blockDim.y + threadIdx.y; row < rows; row += gridDim.x * blockDim.y) {
      const unsigned batch = row / T, t = row - batch * T;
      const Bfloat16* place = from.data + batch * from.batch_stride + local * from.head_stride + t * from.token_stride;
      Eight a = load8(place + i), b = load8(place + i + half);
      if (head < turned) {
        const Eight c = load8(h.cosine + int64_t{t} * half + i), s = load8(h.sine + int64_t{t} * half + i);
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          const float back = a[k] * c[k] + b[k] * s[k];
          b[k] = b[k] * c[k] - a[k] * s[k];
          a[k] = back;
        }
      }
      store8(dqkv + row * columns + column, a);
      store8(dqkv + row * columns + column + half, b);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        a_sum[k] += a[k];
        b_sum[k] += b[k];
      }
    }
  }
  float* own = block_sums[threadIdx.y * blockDim.x + threadIdx.x];
  store8(own, a_sum);
  store8(own + 8, b_sum);
  __syncthreads();
  if (threadIdx.y > 0 || head >= all) return;
  for (unsigned y = 1; y < blockDim.y; ++y) {
    const float* other = block_sums[y * blockDim.x + threadIdx.x];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      a_sum[k] += other[k];
      b_sum[k] += other[k + 8];
    }
  }
  float* part = parts + blockIdx.x * columns + column;
  store8(part, a_sum);
  store8(part + half, b_sum);
}

// A warp reads 32 neighbouring columns of its rows; the warps' sums are added in their order.
constexpr int kSumWarps = 32;
__global__ void __launch_bounds__(kWarp* kSumWarps)
    sum_rows_kernel(int rows, int columns, const float* parts, float* sums) {
  __shared__ float warps[kSumWarps][kWarp];
  const int column = blockIdx.x * kWarp + threadIdx.x;
  float sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (int row = threadIdx.y; row < rows; row += kSumWarps) sum += parts[row * int64_t{columns} + column];
  }
  warps[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= columns) return;
  for (int y = 1; y < kSumWarps; ++y) sum += warps[y][threadIdx.x];
  sums[column] = sum;
}

__device__ float sigmoid(float x) { return __fdividef(1, 1 + __expf(-x)); }

// Eight neighbours for each thread, columns and rows as in rope_backward_kernel.
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

// The sum over `count` neighbouring lanes.
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
  // A target that is no token would read foreign memory; its loss is not a number, which nobody overlooks.
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
  sum = join_block(sum);  // waits for all threads: from here on z may change
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

unsigned blocks_for(int64_t items, unsigned threads) { return static_cast<unsigned>((items + threads - 1) / threads); }

// A block for the groups of columns along x and as many rows along y as fit.
dim3 block_for(int64_t groups) {
  const auto across = static_cast<unsigned>(groups < kThreads ? groups : kThreads);
  return {across, kThreads / across};
}

cudaStream_t stream_of(Target target) { return static_cast<cudaStream_t>(target.stream); }

// Runs `launch` on the target's device and returns its error.
template <class Launch>
int on_device(Target target, const Launch& launch) {
  int before = 0;
  if (const cudaError_t error = cudaGetDevice(&before)) return error;
  if (const cudaError_t error = before == target.device ? cudaSuccess : cudaSetDevice(target.device)) return error;
  launch(stream_of(target));
  const cudaError_t error = cudaGetLastError();
  if (before != target.device) cudaSetDevice(before);
  return error;
}

// Calls function.operator()<V>() for width = 128·V.
template <class Function>
void with_width(int64_t width, const Function& function) {
  switch (width / 128) {
    case 1:
      return function.template operator()<1>();
    case 2:
      return function.template operator()<2>();
    case 3:
      return function.template operator()<3>();
    case 4:
      return function.template operator()<4>();
    case 5:
      return function.template operator()<5>();
    case 6:
      return function.template operator()<6>();
    case 7:
      return function.template operator()<7>();
    case 8:
      return function.template operator()<8>();
    case 10:
      return function.template operator()<10>();
    case 12:
      return function.template operator()<12>();
    default:
      return function.template operator()<16>();
  }
}

}  // namespace

bool available(int device) {
  int major = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess && major >= 8;
}

const char* error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

bool supports_width(int64_t width) {
  const int64_t v = width / 128;
  return width % 128 == 0 && ((v >= 1 && v <= 8) || v == 10 || v == 12 || v == 16);
}

int rms_norm(Target target, int64_t rows, int64_t width, const Norm& arguments) {
  return on_device(target, [&](cudaStream_t stream) {
    with_width(width, [&]<int V>() {
      rms_norm_kernel<V><<<blocks_for(rows, kWarps), kThreads, 0, stream>>>(rows, arguments);
    });
  });
}

int64_t parts_of(int64_t rows) {
  const int64_t blocks = (rows + kWarps - 1) / kWarps;
  return blocks < kPartBlocks ? blocks : kPartBlocks;
}

int rms_norm_backward(Target target, int64_t rows, int64_t width, const NormBackward& arguments) {
  return on_device(target, [&](cudaStream_t stream) {
    with_width(width,
               [&]<int V>() { rms_norm_backward_kernel<V><<<parts_of(rows), kThreads, 0, stream>>>(rows, arguments); });
  });
}

int rope(Target target, const Heads& h, Bfloat16* qkv) {
  const int64_t items = h.B * h.T * (h.heads + h.kv_heads) * h.head_dim / 8;
  return on_device(target, [&](cudaStream_t stream) {
    rope_kernel<<<blocks_for(items, kThreads), kThreads, 0, stream>>>(h, static_cast<unsigned>(items), qkv);
  });
}

int rope_backward(Target target, const Heads& h, const HeadGradients& from, Bfloat16* dqkv, float* parts) {
  const int64_t groups = (h.heads + 2 * h.kv_heads) * h.head_dim / 16;
  const dim3 block = block_for(groups), grid(static_cast<unsigned>(parts_of(h.B * h.T)), blocks_for(groups, block.x));
  return on_device(
      target, [&](cudaStream_t stream) { rope_backward_kernel<<<grid, block, 0, stream>>>(h, from, dqkv, parts); });
}

int sum_rows(Target target, int64_t rows, int64_t columns, const float* parts, float* sums) {
  return on_device(target, [&](cudaStream_t stream) {
    sum_rows_kernel<<<blocks_for(columns, kWarp), dim3(kWarp, kSumWarps), 0, stream>>>(
        static_cast<int>(rows), static_cast<int>(columns), parts, sums);
  });
}

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

template <class T>
static int launch_cross_entropy(Target target, int64_t rows, int64_t vocab, T* z, const int64_t* targets, float* loss,
                                bool gradient) {
  return on_device(target, [&](cudaStream_t stream) {
    cross_entropy_kernel<<<static_cast<unsigned>(rows), kRowThreads, 0, stream>>>(static_cast<int>(vocab), z, targets,
                                                                                  loss, gradient);
  });
}

int cross_entropy(Target target, int64_t rows, int64_t vocab, Bfloat16* z, const int64_t* targets, float* loss,
                  bool gradient) {
  return launch_cross_entropy(target, rows, vocab, z, targets, loss, gradient);
}

int cross_entropy(Target target, int64_t rows, int64_t vocab, float* z, const int64_t* targets, float* loss,
                  bool gradient) {
  return launch_cross_entropy(target, rows, vocab, z, targets, loss, gradient);
}

}  // namespace prism::model::cuda
