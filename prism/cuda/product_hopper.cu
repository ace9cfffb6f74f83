// Products for compute capability 9.0. Clusters of two blocks stay on the multiprocessors and take tiles of 256×256 in
// turn, 128 rows for each block. In each block, one thread copies operands into a ring of shared-memory stages, ahead
// of the computation and into the next tile; the columns' operand is loaded once for both blocks. Two warpgroups
// multiply, 64 rows each. They keep their results in registers, as fp16, and write them while the tensor cores work on
// the next tile.

#include <algorithm>
#include <array>

#include "prism/cuda/hopper_weights.cuh"

namespace prism::cuda {
namespace {

// Returns false if the launch would only write every C back, as between two refreshes of averaged covariances. The same
// for all blocks.
__device__ bool has_work(const Launch& launch) {
  if (!launch.stacks[0].epilogue.writes_C) return true;
  bool mine = false;
  for (int s = 0; s < kMaxProducts && launch.stacks[s].tiles > 0; ++s) {
    const int count = launch.stacks[s].tiles / launch.stacks[s].tiles_of_one;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += 3 * kGroup)
      mine |= !leaves_C(launch.stacks[s].epilogue, i);
  }
  return __syncthreads_or(mine);
}

template <bool A_down, bool B_down, Result Kind, class T>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(3 * kGroup, 1)
    product_kernel(const __grid_constant__ Parameters<Kind> parameters) {
  const Launch& launch = parameters.launch;
  extern __shared__ __align__(1024) uint8_t memory[];  // the alignment of the swizzle's pattern
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      hopper::barrier_init(&shared.full[i], 1);
      hopper::barrier_init(&shared.empty[i], 4);  // the multiplying warpgroups of both blocks
    }
    for (int i = 0; i < 4; ++i) hopper::barrier_init(&shared.arrived[i / 2][i % 2], 1);
    hopper::barrier_init_visible();
  }
  hopper::cluster_sync();
  hopper::let_next_begin();
  hopper::wait_for_previous();
  if constexpr (Kind == Result::Float32) {
    if (!has_work(launch)) return;
  }
  const int rank = static_cast<int>(hopper::cluster_rank());
  // The shuffle tells the compiler that this is the same number for all threads of a warp; without it registers spill.
  const int group = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / kGroup, 0);
  if (group == 0) {
    hopper::fewer_registers<24>();
    if (threadIdx.x == 0) load_tiles<A_down, B_down>(launch, shared, rank);
  } else {
    hopper::more_registers<240>();
    if constexpr (Kind == Result::Weights) {
      update_tiles<A_down, B_down, T>(parameters, shared, group - 1, rank);
    } else {
      multiply_tiles<A_down, B_down, Kind>(launch, shared, group - 1, rank);
    }
  }
  __syncwarp();
  hopper::cluster_sync();  // the other block may still write here
}

using EncodeTensorMap = decltype(&cuTensorMapEncodeTiled);

// Finds the driver's function without linking to the driver.
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

// The map of a stack of rows×columns matrices, in boxes of 64 or 128 bytes of `box_rows` rows.
struct MapShape {
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  int size = sizeof(__half);  // of an element
  int count = 1, rows = 0, columns = 0;
  int64_t pitch = 0, stride = 0;
  int box_rows = 0, box_columns = 64;
};
cudaError_t make_map(EncodeTensorMap encode, CUtensorMap* map, const void* data, const MapShape& shape) {
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(shape.columns), static_cast<cuuint64_t>(shape.rows),
                               static_cast<cuuint64_t>(shape.count)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(shape.pitch * shape.size),
                                 static_cast<cuuint64_t>(shape.stride * shape.size)};
  const cuuint32_t boxes[3] = {static_cast<cuuint32_t>(shape.box_columns), static_cast<cuuint32_t>(shape.box_rows), 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  const auto swizzle = shape.box_columns * shape.size == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B;
  const CUresult result =
      encode(map, shape.type, 3, const_cast<void*>(data), sizes, strides, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

int pieces(int size, int piece) { return (size + piece - 1) / piece; }

// Creates all maps of a product with the box sizes that the kernel uses: 64 rows, 128 columns of the product, or 64
// indices of k down the columns; strips of 64.
cudaError_t make_maps(EncodeTensorMap encode, Stack& stack, const Product& product) {
  cudaError_t error = cudaSuccess;
  const auto map = [&](CUtensorMap* target, const Operand& operand, int outer, int k, bool down, int box) {
    if (error == cudaSuccess)
      error = make_map(encode, target, operand.data,
                       {.count = product.count,
                        .rows = down ? k : outer,
                        .columns = down ? outer : k,
                        .pitch = operand.pitch,
                        .stride = operand.stride,
                        .box_rows = down ? kDepth : box});
  };
  for (int t = 0; t < product.term_count; ++t) {
    const Term& term = product.terms[t];
    stack.depths[t] = pieces(term.k, kDepth);
    map(&stack.A[t], term.A, product.rows, term.k, product.A_down, kStrip);
    map(&stack.B[t], term.B, product.columns, term.k, product.B_down, kColumns / 2);
  }
  const Epilogue& e = product.epilogue;
  const auto strips = [&](CUtensorMap* target, const __half* data) {
    if (data != nullptr) map(target, {data, e.pitch, e.stride}, product.rows, product.columns, false, kStrip);
  };
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
  stack.square = product.A_down == product.B_down;
  for (int t = 0; t < product.term_count; ++t)
    stack.square = stack.square && product.terms[t].A.data == product.terms[t].B.data;
  stack.epilogue = product.epilogue;
  return make_maps(encode, stack, product);
}

// Creates the maps of a product's weights, or of their masters.
cudaError_t map_weights(EncodeTensorMap encode, CUtensorMap* maps, const Product& product, const Pointers& pointers) {
  const Epilogue& e = product.epilogue;
  const bool float32 = e.has_master || e.weight == Real::Float32;
  MapShape shape{.rows = product.rows,
                 .columns = product.columns,
                 .pitch = product.columns,
                 .stride = int64_t{product.rows} * product.columns,
                 .box_rows = kStrip,
                 .box_columns = kSlice};
  if (float32) shape.type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32, shape.size = sizeof(float);
  for (int i = e.first; i < e.first + product.count; ++i) {
    const void* data = e.has_master ? pointers.master[i] : pointers.W[i];
    if (!can_be_mapped(data, product.columns, shape.size)) continue;
    const cudaError_t error = make_map(encode, &maps[i], data, shape);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

template <Result Kind>
using Kernel = void (*)(Parameters<Kind>);

cudaError_t run(const auto& kernel, const auto& parameters, int device, cudaStream_t stream) {
  int processors = 0;
  cudaError_t error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  constexpr int kBytes = sizeof(Shared);
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute closely{};
  closely.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  closely.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(2 * std::min(parameters.launch.tiles, processors / 2));
  config.blockDim = dim3(3 * kGroup);
  config.dynamicSmemBytes = kBytes;
  config.stream = stream;
  config.attrs = &closely;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, parameters);
}

template <bool A_down>
Kernel<Result::Weights> weight_kernel(Real type) {
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

// Runs updates from the right, T·Q, and from the left, Qᵀ·T.
cudaError_t run_update(EncodeTensorMap encode, const Product* products, int count, const Launch& launch, int device,
                       cudaStream_t stream) {
  if (!products[0].B_down) return cudaErrorInvalidValue;
  Parameters<Result::Weights> parameters{launch, {}};
  for (int p = 0; p < count; ++p) {
    const cudaError_t error = map_weights(encode, parameters.weights, products[p], launch.pointers);
    if (error != cudaSuccess) return error;
  }
  const Real type = products[0].epilogue.weight;
  return run(products[0].A_down ? weight_kernel<true>(type) : weight_kernel<false>(type), parameters, device, stream);
}

// Runs left Gram matrices and the iteration, right Gram matrices, or updates that are stored: T·Q and Qᵀ·T.
template <Result Kind>
cudaError_t run_matrices(const Product* products, const Launch& launch, int device, cudaStream_t stream) {
  const bool A_down = products[0].A_down, B_down = products[0].B_down;
  Kernel<Kind> kernel = A_down ? product_kernel<true, true, Kind, void> : product_kernel<false, false, Kind, void>;
  if constexpr (Kind == Result::Halves) {
    if (!A_down && B_down) kernel = product_kernel<false, true, Kind, void>;
  } else {
    if (!A_down && B_down) return cudaErrorInvalidValue;
  }
  if (A_down && !B_down) return cudaErrorInvalidValue;
  return run(kernel, Parameters<Kind>{launch}, device, stream);
}

}  // namespace

cudaError_t launch_hopper(const Product* products, int count, const Pointers& pointers, const Rates& rates, int device,
                          cudaStream_t stream) {
  EncodeTensorMap encode = nullptr;
  cudaError_t error = find_encoder(&encode);
  if (error != cudaSuccess) return error;
  // The deepest tiles come first: short ones fill the gaps at the end.
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
  const Epilogue& e = products[0].epilogue;
  if (e.weights) return run_update(encode, products, count, launch, device, stream);
  return e.reads_C || e.writes_C ? run_matrices<Result::Float32>(products, launch, device, stream)
                                 : run_matrices<Result::Halves>(products, launch, device, stream);
}

}  // namespace prism::cuda
