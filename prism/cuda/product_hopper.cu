// Products for compute capability 9.0. Clusters of two blocks stay on the multiprocessors and take tiles of 256×256 in
// turn, 128 rows for each block. In a block one thread copies operands into a ring of shared-memory stages, ahead into
// the next tile too; the columns' operand comes once for both blocks. Two warpgroups multiply, 64 rows each, and finish
// what they multiplied.

#include <algorithm>
#include <array>
#include <tuple>

#include "prism/cuda/hopper_weights.cuh"

namespace prism::cuda {
namespace {

template <bool A_down, bool B_down, Result Kind, class T>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(3 * kGroup, 1)
    product_kernel(const __grid_constant__ Launch launch) {
  extern __shared__ __align__(1024) uint8_t memory[];  // the alignment of the swizzle's pattern
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      hopper::barrier_init(&shared.full[i], 1);
      hopper::barrier_init(&shared.empty[i], 4);  // the multiplying warpgroups of both blocks
    }
    hopper::barrier_init_visible();
  }
  hopper::cluster_sync();
  hopper::let_next_begin();
  hopper::wait_for_previous();
  const int rank = static_cast<int>(hopper::cluster_rank());
  const int group = static_cast<int>(threadIdx.x) / kGroup;
  if (group == 0) {
    hopper::fewer_registers<40>();
    if (threadIdx.x == 0) load_tiles<A_down, B_down>(launch, shared, rank);
  } else {
    hopper::more_registers<232>();
    if constexpr (Kind == Result::Weights) {
      update_tiles<A_down, B_down, T>(launch, shared, group - 1, rank);
    } else {
      multiply_tiles<A_down, B_down, Kind>(launch, shared, group - 1, rank);
    }
  }
  __syncwarp();
  hopper::cluster_sync();  // the other block may still write here
}

using EncodeTensorMap = decltype(&cuTensorMapEncodeTiled);

// The driver's function, found without linking to the driver.
cudaError_t find_encoder(EncodeTensorMap* encode) {
  static EncodeTensorMap found = nullptr;
  if (found == nullptr) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &result);
    if (error != cudaSuccess) return error;
    if (result != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
    found = reinterpret_cast<EncodeTensorMap>(entry);
  }
  *encode = found;
  return cudaSuccess;
}

// The map of a stack of rows×columns matrices, in boxes of 64 elements of `box_rows` rows.
cudaError_t make_map(EncodeTensorMap encode, CUtensorMap* map, const Operand& operand, int count, int rows, int columns,
                     int box_rows) {
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows),
                               static_cast<cuuint64_t>(count)};
  const cuuint64_t strides[2] = {operand.pitch * sizeof(__half), operand.stride * sizeof(__half)};
  const cuuint32_t boxes[3] = {64, static_cast<cuuint32_t>(box_rows), 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  const CUresult result = encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, const_cast<__half*>(operand.data), sizes,
                                 strides, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

int pieces(int size, int piece) { return (size + piece - 1) / piece; }

// All the maps of a product, in boxes as the kernel takes them: 128 rows, or 64 indices of k down the columns; strips
// of 64.
cudaError_t make_maps(EncodeTensorMap encode, Stack& stack, const Product& product) {
  cudaError_t error = cudaSuccess;
  const auto map = [&](CUtensorMap* target, const Operand& operand, int outer, int k, bool down, int box) {
    if (error == cudaSuccess)
      error = make_map(encode, target, operand, product.count, down ? k : outer, down ? outer : k, down ? kDepth : box);
  };
  for (int t = 0; t < product.term_count; ++t) {
    const Term& term = product.terms[t];
    stack.depths[t] = pieces(term.k, kDepth);
    map(&stack.A[t], term.A, product.rows, term.k, product.A_down, kRows);
    map(&stack.B[t], term.B, product.columns, term.k, product.B_down, kColumns / 2);
  }
  const Epilogue& e = product.epilogue;
  const auto strips = [&](CUtensorMap* target, const __half* data) {
    if (data != nullptr) map(target, {data, e.pitch, e.stride}, product.rows, product.columns, false, kStrip);
  };
  strips(&stack.C1, e.C1);
  strips(&stack.high, e.high);
  strips(&stack.low, e.low);
  return error;
}

cudaError_t make_stack(EncodeTensorMap encode, Stack& stack, const Product& product) {
  stack.rows = product.rows;
  stack.columns = product.columns;
  stack.column_tiles = pieces(product.columns, kColumns);
  const int row_tiles = pieces(product.rows, 2 * kRows);
  stack.tiles_of_one = product.symmetric ? triangle(row_tiles) : row_tiles * stack.column_tiles;
  stack.tiles = product.count * stack.tiles_of_one;
  stack.symmetric = product.symmetric;
  stack.epilogue = product.epilogue;
  return make_maps(encode, stack, product);
}

using Kernel = void (*)(Launch);

template <bool A_down, bool B_down>
Kernel matrix_kernel(bool float32) {
  return float32 ? product_kernel<A_down, B_down, Result::Float32, void>
                 : product_kernel<A_down, B_down, Result::Halves, void>;
}

template <bool A_down>
Kernel weight_kernel(Real type) {
  switch (type) {
    case Real::Float16:
      return product_kernel<A_down, true, Result::Weights, __half>;
    case Real::BFloat16:
      return product_kernel<A_down, true, Result::Weights, __nv_bfloat16>;
    case Real::Float32:
      break;
  }
  return product_kernel<A_down, true, Result::Weights, float>;
}

// Left Gram matrices and the iteration; right Gram matrices; updates from the right and from the left. Null for what
// nobody needs.
Kernel kernel_for(const Product& product) {
  const auto& [A_down, B_down, e] = std::tie(product.A_down, product.B_down, product.epilogue);
  if (e.weights) {
    if (!B_down) return nullptr;
    return A_down ? weight_kernel<true>(e.weight) : weight_kernel<false>(e.weight);
  }
  if (A_down != B_down) return nullptr;
  const bool float32 = e.reads_C || e.writes_C;
  return A_down ? matrix_kernel<true, true>(float32) : matrix_kernel<false, false>(float32);
}

}  // namespace

cudaError_t launch_hopper(const Product* products, int count, const Pointers& pointers, const Rates& rates, int device,
                          cudaStream_t stream) {
  EncodeTensorMap encode = nullptr;
  cudaError_t error = find_encoder(&encode);
  if (error != cudaSuccess) return error;
  // The deepest tiles first: those that are over soon fill the gaps at the end.
  std::array<const Product*, kMaxProducts> order{};
  for (int p = 0; p < count; ++p) order[p] = &products[p];
  const auto depth = [](const Product* product) { return product->terms[0].k * product->term_count; };
  std::stable_sort(order.begin(), order.begin() + count,
                   [&](const Product* a, const Product* b) { return depth(a) > depth(b); });
  Launch launch{};
  for (int p = 0; p < count; ++p) {
    error = make_stack(encode, launch.stacks[p], *order[p]);
    if (error != cudaSuccess) return error;
    launch.tiles += launch.stacks[p].tiles;
  }
  launch.pointers = pointers;
  launch.rates = rates;
  int processors = 0;
  error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  const Kernel kernel = kernel_for(products[0]);
  if (kernel == nullptr) return cudaErrorInvalidValue;
  constexpr int kBytes = sizeof(Shared);
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute closely{};
  closely.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  closely.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(2 * std::min(launch.tiles, processors / 2));
  config.blockDim = dim3(3 * kGroup);
  config.dynamicSmemBytes = kBytes;
  config.stream = stream;
  config.attrs = &closely;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, launch);
}

}  // namespace prism::cuda
