// Launches the steps of thin matrices: the table of their pointers, and a kernel for each of two Gram sides.

#include <algorithm>

#include "prism/cuda/thin.h"
#include "prism/cuda/thin_step.cuh"

namespace prism::cuda {
namespace {

using namespace thin;

template <int K>
__global__ void __launch_bounds__(Sizes<K>::kThreads, 1) thin_kernel(const __grid_constant__ ThinLaunch launch) {
  if (!applies(launch.settings.apply)) return;
  extern __shared__ float4 memory[];
  __shared__ ThinMatrix matrix;
  constexpr int kWords = sizeof(ThinMatrix) / sizeof(uint32_t);
  static_assert(sizeof(ThinMatrix) % sizeof(uint32_t) == 0);
  const auto* source = reinterpret_cast<const uint32_t*>(launch.matrices + blockIdx.x);
  if (static_cast<int>(threadIdx.x) < kWords) reinterpret_cast<uint32_t*>(&matrix)[threadIdx.x] = source[threadIdx.x];
  __syncthreads();
  ThinStep<K>(launch, matrix, reinterpret_cast<float*>(memory)).run();
}

// ---- the table of matrices, which travels as the parameters of kernels: a graph keeps those

template <int Capacity>
struct Batch {
  ThinMatrix matrices[Capacity];
};

template <int Capacity>
__global__ void table_kernel(const __grid_constant__ Batch<Capacity> batch, int count, ThinMatrix* table) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) table[i] = batch.matrices[i];
}

template <int Capacity>
cudaError_t write_batch(const ThinMatrix* matrices, int count, ThinMatrix* table, cudaStream_t stream) {
  Batch<Capacity> batch;
  std::copy_n(matrices, count, batch.matrices);
  table_kernel<Capacity><<<(count + kWarp - 1) / kWarp, kWarp, 0, stream>>>(batch, count, table);
  return cudaGetLastError();
}

cudaError_t write_table(const std::vector<ThinMatrix>& matrices, ThinMatrix* table, cudaStream_t stream) {
  constexpr int kFew = 32, kMany = 280;  // parameters of 4 and 32 KB at most
  static_assert(sizeof(Batch<kMany>) <= 32000);
  const auto count = static_cast<int>(matrices.size());
  if (count <= kFew) return write_batch<kFew>(matrices.data(), count, table, stream);
  for (int first = 0; first < count; first += kMany) {
    const cudaError_t error =
        write_batch<kMany>(matrices.data() + first, std::min(kMany, count - first), table + first, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

int gram_side_of(const MatrixStack& stack) { return static_cast<int>(stack.left ? stack.m : stack.n); }

void add_matrices(std::vector<ThinMatrix>& list, const MatrixStack& stack, const float* D) {
  const auto at_or_null = [](const auto& pointers, size_t b) { return pointers.empty() ? nullptr : pointers[b]; };
  for (size_t b = 0; b < stack.G.size(); ++b) {
    list.push_back({.G = stack.G[b],
                    .M = stack.M[b],
                    .D = D == nullptr ? nullptr : D + static_cast<int64_t>(b) * stack.m * stack.n,
                    .W = stack.W[b],
                    .master = at_or_null(stack.master, b),
                    .step = at_or_null(stack.step, b),
                    .gamma_factor = at_or_null(stack.gamma_factor, b),
                    .C = at_or_null(stack.C, b),
                    .C_scale = at_or_null(stack.C_scale, b),
                    .row_moment = at_or_null(stack.row_moment, b),
                    .m = static_cast<int>(stack.m),
                    .n = static_cast<int>(stack.n),
                    .gamma_scale = static_cast<float>(stack.gamma_scale),
                    .scale = static_cast<float>(stack.scale),
                    .gradient = stack.gradient,
                    .weight = stack.weight,
                    .left = stack.left});
  }
}

// Launches the matrices whose Gram side is at most K.
template <int K>
cudaError_t launch_side(ThinLaunch launch, const std::vector<ThinMatrix>& matrices, int device, cudaStream_t stream) {
  if (matrices.empty()) return cudaSuccess;
  int most = 0;
  cudaError_t error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error != cudaSuccess) return error;
  constexpr int kReserved = 2048;  // for variables in shared memory
  constexpr int kFixed = Sizes<K>::kFloats * static_cast<int>(sizeof(float)) + 16;
  int tiles = 0;
  for (const auto& matrix : matrices) tiles = std::max(tiles, (matrix.left ? matrix.n : matrix.m) + kTile - 1);
  launch.held_tiles = std::clamp((most - kReserved - kFixed) / Sizes<K>::kTileBytes, 0, tiles / kTile);
  const int bytes = kFixed + launch.held_tiles * Sizes<K>::kTileBytes;
  error = cudaFuncSetAttribute(thin_kernel<K>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  thin_kernel<K><<<static_cast<int>(matrices.size()), Sizes<K>::kThreads, static_cast<size_t>(bytes), stream>>>(launch);
  return cudaGetLastError();
}

// ---- operands of parts

struct Part {
  const float* G;
  float *M, *T, *D;
  const float* step;
};

struct PartLaunch {
  SignalSettings settings;
  Part parts[kMaxMatrices];
  int elements;
};

__global__ void operand_kernel(const __grid_constant__ PartLaunch launch) {
  const Part& part = launch.parts[blockIdx.y];
  const SignalRule rule = read_rule(launch.settings, part.step);
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < launch.elements;
       i += static_cast<int>(gridDim.x * blockDim.x)) {
    const Signal signal = rule(part.G[i], part.M[i]);
    part.M[i] = signal.M;
    part.T[i] = signal.T;
    if (part.D != nullptr) part.D[i] = signal.D;
  }
}

}  // namespace

bool is_thin(const SpectralRule& rule, const MatrixStack& stack) {
  const int64_t k = stack.left ? stack.m : stack.n, length = stack.left ? stack.n : stack.m;
  // The length up to which one block is not slower than the other kernels for a single matrix. The number of matrices must
  // not matter: results do not depend on companions.
  const int64_t longest = k <= 16 ? 8192 : 2048;
  return !stack.stacked && !stack.whitened && k <= 32 && length <= longest &&
         rule.steps.size() * 5 <= kMaxIterationProducts;
}

int64_t thin_bytes(const std::vector<const MatrixStack*>& stacks) {
  size_t count = 0;
  for (const auto* stack : stacks) count += stack->G.size();
  return static_cast<int64_t>(count * sizeof(ThinMatrix));
}

cudaError_t launch_thin(const SpectralRule& rule, const StepScalars& scalars, const Iteration& iteration,
                        const std::vector<const MatrixStack*>& stacks, const float* D, void* scratch, int device,
                        cudaStream_t stream) {
  std::vector<ThinMatrix> small, large;
  for (const auto* stack : stacks) add_matrices(gram_side_of(*stack) <= 16 ? small : large, *stack, D);
  auto* table = static_cast<ThinMatrix*>(scratch);
  ThinLaunch launch{.settings = {rule, scalars},
                    .rates = {scalars.lr, scalars.apply, static_cast<float>(scalars.weight_decay)},
                    .matrices = table,
                    .held_tiles = 0,
                    .bound = rule.bound,
                    .by_norm = rule.by_norm,
                    .rescales = rule.rescales(),
                    .fixed_norm = rule.fixed_norm,
                    .row_beta = static_cast<float>(rule.row_beta),
                    .A_scale = iteration.A_scale,
                    .Q_scale = iteration.Q_scale,
                    .Q = iteration.Q,
                    .product_count = static_cast<int>(iteration.products.size()),
                    .products = {}};
  std::copy(iteration.products.begin(), iteration.products.end(), launch.products);
  std::vector<ThinMatrix> all = small;
  all.insert(all.end(), large.begin(), large.end());
  cudaError_t error = write_table(all, table, stream);
  if (error == cudaSuccess) error = launch_side<16>(launch, small, device, stream);
  launch.matrices = table + small.size();
  if (error == cudaSuccess) error = launch_side<32>(launch, large, device, stream);
  return error;
}

cudaError_t launch_thin_operands(const SpectralRule& rule, const MatrixStack& parts, float* T, float* D,
                                 cudaStream_t stream) {
  const int64_t elements = parts.m * parts.n;
  for (size_t first = 0; first < parts.G.size(); first += kMaxMatrices) {
    PartLaunch launch{.settings = {rule, StepScalars{}}, .parts = {}, .elements = static_cast<int>(elements)};
    const size_t count = std::min<size_t>(parts.G.size() - first, kMaxMatrices);
    for (size_t i = 0; i < count; ++i) {
      const size_t b = first + i;
      const auto offset = static_cast<int64_t>(b) * elements;
      launch.parts[i] = {.G = static_cast<const float*>(parts.G[b]),
                         .M = parts.M[b],
                         .T = T + offset,
                         .D = D == nullptr ? nullptr : D + offset,
                         .step = parts.step.empty() ? nullptr : parts.step[b]};
    }
    const auto blocks = static_cast<unsigned>(std::min<int64_t>((elements + 255) / 256, 64));
    operand_kernel<<<dim3(blocks, static_cast<unsigned>(count)), 256, 0, stream>>>(launch);
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace prism::cuda
