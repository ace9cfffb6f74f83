#include "prism/model/kernels_cuda.cuh"

namespace prism::model::cuda {
namespace {

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

// A thread has the same eight pairs of columns in each of its rows. threadIdx.x and blockIdx.y select the columns,
// threadIdx.y and blockIdx.x the rows.
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

}  // namespace

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

}  // namespace prism::model::cuda
