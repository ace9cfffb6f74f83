#include "prism/model/kernels_cuda.cuh"

namespace prism::model::cuda {
namespace {

// The most parts of a sum over rows: six blocks for each of an H200's 132 multiprocessors, so whole waves of 1, 2 or 3
// blocks. The same on every device, and so is the order of the sum.
constexpr int64_t kMostParts = 6 * 132;

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

constexpr int norm_blocks(int V) { return V <= 4 ? 3 : V <= 6 ? 2 : 1; }  // as many as registers allow

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

// Each warp reads 32 adjacent columns of its rows; the sums of the warps are added in a fixed order.
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
  return blocks < kMostParts ? blocks : kMostParts;
}

int rms_norm_backward(Target target, int64_t rows, int64_t width, const NormBackward& arguments) {
  return on_device(target, [&](cudaStream_t stream) {
    with_width(width,
               [&]<int V>() { rms_norm_backward_kernel<V><<<parts_of(rows), kThreads, 0, stream>>>(rows, arguments); });
  });
}

int sum_rows(Target target, int64_t rows, int64_t columns, const float* parts, float* sums) {
  return on_device(target, [&](cudaStream_t stream) {
    sum_rows_kernel<<<blocks_for(columns, kWarp), dim3(kWarp, kSumWarps), 0, stream>>>(
        static_cast<int>(rows), static_cast<int>(columns), parts, sums);
  });
}

}  // namespace prism::model::cuda
