// Products for compute capability 9.0. Clusters of two blocks stay on the multiprocessors and take tiles of 256×256 in
// turn, 128 rows for each block. In each block, one thread copies operands into a ring of shared-memory stages, ahead
// of the computation and into the next tile; the columns' operand is loaded once for both blocks. Two warpgroups
// multiply, 64 rows each. They keep their results in registers, as fp16. While the tensor cores work on the next tile,
// they pass them through shared memory to two threads that store them.

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "prism/cuda/hopper_porter.cuh"
#include "prism/cuda/hopper_weights.cuh"

namespace prism::cuda {
namespace {

// Returns false if the launch would only write every C back, as between two refreshes of averaged covariances. The same
// for all blocks.
template <class Launch>
__device__ bool has_work(const Launch& launch) {
  if (!launch.stacks[0].epilogue.writes_C) return true;
  bool mine = false;
  for (int s = 0; s < launch.stack_count; ++s) {
    for (int i = static_cast<int>(threadIdx.x); i < launch.stacks[s].count; i += 3 * kGroup)
      mine |= !leaves_C(launch.stacks[s].epilogue, i);
  }
  return __syncthreads_or(mine);
}

// With `Bytes`, the kernel takes and writes matrices in bytes.
template <Layouts Known, Result Kind, class T, bool Ordered, bool Bytes>
__device__ __forceinline__ void run_block(const Parameters<Kind, Ordered>& parameters) {
  const auto& launch = parameters.launch;
  Shared& shared = *reinterpret_cast<Shared*>(hopper::shared_memory());
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      hopper::barrier_init(&shared.full[i], 1);
      hopper::barrier_init(&shared.empty[i], 4);  // the multiplying warpgroups of both blocks
    }
    for (int i = 0; i < 2; ++i) {
      hopper::barrier_init(&shared.lent[i], 1);
      hopper::barrier_init(&shared.returned[i], kGroup / 32);
    }
    for (int i = 0; i < 4; ++i) hopper::barrier_init(&shared.arrived[i / 2][i % 2], 1);
    for (int i = 0; Ordered && i < kTickets; ++i) {
      hopper::barrier_init(&shared.told[i], 1);
      hopper::barrier_init(&shared.heard[i], kListeners);
      Tickets<typename Parameters<Kind, Ordered>::Launch>::expect(shared, i);
    }
    hopper::barrier_init_visible();
  }
  hopper::cluster_sync();
  hopper::let_next_begin();
  hopper::wait_for_previous();
  if constexpr (Kind == Result::Float32) {
    if (!has_work(launch)) return;
  }
  if constexpr (Ordered) {
    if (launch.runs != nullptr && *launch.runs == 0) return;
  }
  const int rank = static_cast<int>(hopper::cluster_rank());
  // The shuffle tells the compiler that this is the same number for all threads of a warp; without it registers spill.
  const int group = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / kGroup, 0);
  if (group == 0) {
    hopper::fewer_registers<24>();
    if (threadIdx.x == 0) load_tiles<Known, Ordered, Ordered && Bytes>(launch, shared, rank);
    if constexpr (Ordered) {
      if (threadIdx.x == 32 && rank == 0)
        Tickets<typename Parameters<Kind, Ordered>::Launch>{launch, shared, rank}.tell_all();
    }
    if constexpr (Kind != Result::Weights) {
      const int porter = static_cast<int>(threadIdx.x) / 32 - 2;
      if (porter >= 0 && threadIdx.x % 32 == 0) carry_strips<Ordered, Bytes>(launch, shared, porter, rank);
    }
  } else {
    hopper::more_registers<240>();
    if constexpr (Kind == Result::Weights) {
      update_tiles<T>(parameters, shared, group - 1, rank);
    } else {
      multiply_tiles<Known, Kind, Ordered, Bytes>(launch, shared, group - 1, rank);
    }
  }
  __syncwarp();
  hopper::cluster_sync();  // the other block may still write here
}

template <Layouts Known, Result Kind, class T>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(3 * kGroup, 1)
    product_kernel(const __grid_constant__ Parameters<Kind, false> parameters) {
  run_block<Known, Kind, T, /*Ordered=*/false, /*Bytes=*/true>(parameters);
}

template <bool Bytes>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(3 * kGroup, 1)
    sequence_kernel(const __grid_constant__ Parameters<Result::Halves, true> parameters) {
  run_block<Layouts::Along, Result::Halves, void, /*Ordered=*/true, Bytes>(parameters);
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
  bool operator==(const MapShape&) const = default;
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

// Fills the parameters of a launch.
template <class Launch>
class Builder {
 public:
  explicit Builder(EncodeTensorMap encode) : encode_(encode) {}

  // Returns true if another product certainly fits.
  bool has_room() const { return launch.stack_count < Launch::kStacks && map_count_ + kMostMaps <= Launch::kMaps; }

  cudaError_t add(const Product& product, int needed) {
    Stack& stack = launch.stacks[launch.stack_count];
    stack.count = product.count;
    stack.rows = product.rows;
    stack.columns = product.columns;
    stack.column_tiles = pieces(product.columns, kColumns);
    stack.tiles_of_one = tiles_of(product);
    stack.symmetric = product.symmetric;
    stack.A_down = product.A_down;
    stack.A_lower = product.A_lower;
    stack.B_lower = product.B_lower;
    stack.square = product.A_down == product.B_down;
    for (int t = 0; t < product.term_count; ++t)
      stack.square = stack.square && product.terms[t].A.data == product.terms[t].B.data;
    stack.progress = product.progress;
    stack.needed = needed;
    stack.epilogue = product.epilogue;
    make_maps(stack, product);
    ++launch.stack_count;
    return error_;
  }

  // Returns true if a product reads or writes matrices in bytes.
  bool has_bytes() const { return has_bytes_; }

  // Lists all tiles in the order of the products.
  void list_tiles() {
    for (int s = 0; s < launch.stack_count; ++s) list(s, Cover::All);
  }
  // Lists the longest first: short ones fill the gaps at the end.
  void list_longest_first() {
    struct Some {
      int stack;
      Cover cover;
      int length;
    };
    std::vector<Some> all;
    for (int s = 0; s < launch.stack_count; ++s) {
      const Stack& stack = launch.stacks[s];
      const int depth = stack.depths[0] + stack.depths[1];
      if (stack.symmetric && stack.column_tiles == 2) {
        all.push_back({s, Cover::Below, 8 * depth});
        all.push_back({s, Cover::Diagonal, 5 * depth});
      } else {
        all.push_back({s, Cover::All, 8 * depth});
      }
    }
    std::stable_sort(all.begin(), all.end(), [](const Some& a, const Some& b) { return a.length > b.length; });
    for (const auto& some : all) list(some.stack, some.cover);
  }

  static int tiles_of(const Product& product) {
    const int row_tiles = pieces(product.rows, 2 * kRows);
    return product.symmetric ? triangle(row_tiles) : row_tiles * pieces(product.columns, kColumns);
  }

  Launch launch{};

 private:
  void list(int s, Cover cover) {
    const Stack& stack = launch.stacks[s];
    const int diagonal = stack.column_tiles;
    const int of_one = cover == Cover::All     ? stack.tiles_of_one
                       : cover == Cover::Below ? stack.tiles_of_one - diagonal
                                               : diagonal;
    launch.ranges[range_count_++] = {s, stack.count * of_one, of_one, cover};
    launch.tiles += stack.count * of_one;
  }

  // Creates all maps of a product with the box sizes that the kernel uses: 64 rows, 128 columns of the product, or 64
  // indices of k down the columns; strips of 64.
  void make_maps(Stack& stack, const Product& product) {
    const auto map_bytes = [&](const Operand& place, int outer, int k, int box, int box_columns) {
      has_bytes_ = true;
      return index_of_map(place.data, {.type = CU_TENSOR_MAP_DATA_TYPE_UINT8,
                                       .size = 1,
                                       .count = product.count,
                                       .rows = outer,
                                       .columns = pieces(k, 16) * 16,
                                       .pitch = 2 * place.pitch,
                                       .stride = 2 * place.stride,
                                       .box_rows = box,
                                       .box_columns = box_columns});
    };
    const auto map = [&](const Operand& operand, int outer, int k, bool down, int box) {
      return index_of_map(operand.data, {.count = product.count,
                                         .rows = down ? k : outer,
                                         .columns = down ? outer : k,
                                         .pitch = operand.pitch,
                                         .stride = operand.stride,
                                         .box_rows = down ? kDepth : box});
    };
    for (int t = 0; t < product.term_count; ++t) {
      const Term& term = product.terms[t];
      stack.depths[t] = pieces(term.k, term.in_bytes ? 2 * kDepth : kDepth);
      if (term.in_bytes) {
        if (t > 0 || product.A_down || product.B_down) error_ = cudaErrorInvalidValue;
        stack.first_in_bytes = true;
        stack.A[t] = map_bytes(term.A, product.rows, term.k, kStrip, 2 * kDepth);
        stack.B[t] = map_bytes(term.B, product.columns, term.k, kColumns / 2, 2 * kDepth);
        continue;
      }
      stack.A[t] = map(term.A, product.rows, term.k, product.A_down, kStrip);
      stack.B[t] = map(term.B, product.columns, term.k, product.B_down, kColumns / 2);
      stack.B_down[t] = product.B_lower ? map(term.B, product.columns, term.k, true, kStrip) : stack.B[t];
    }
    const Epilogue& e = product.epilogue;
    const auto strips = [&](const __half* data) {
      return map({data, e.pitch, e.stride}, product.rows, product.columns, false, kStrip);
    };
    if (e.high != nullptr) stack.high = strips(e.high);
    if (e.C1 != nullptr) stack.C1 = strips(e.C1);
    const auto bytes = [&](const __half* data) {
      return map_bytes({data, e.pitch, e.stride}, product.rows, product.columns, kStrip, kStrip);
    };
    if (e.low != nullptr) stack.low = e.low_in_bytes ? bytes(e.low) : strips(e.low);
    if (e.bytes != nullptr) stack.bytes = bytes(e.bytes);
  }

  // The same map serves several products.
  uint8_t index_of_map(const void* data, const MapShape& shape) {
    for (int i = 0; i < map_count_; ++i) {
      if (made_[i].first == data && made_[i].second == shape) return static_cast<uint8_t>(i);
    }
    if (map_count_ == Launch::kMaps) error_ = cudaErrorInvalidValue;
    if (error_ != cudaSuccess) return 0;
    made_[map_count_] = {data, shape};
    error_ = make_map(encode_, &launch.maps[map_count_], data, shape);
    return static_cast<uint8_t>(map_count_++);
  }

  EncodeTensorMap encode_;
  std::array<std::pair<const void*, MapShape>, Launch::kMaps> made_{};
  int map_count_ = 0, range_count_ = 0;
  bool has_bytes_ = false;
  cudaError_t error_ = cudaSuccess;
};

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

// Runs updates from the right, T·Q, and from the left, Qᵀ·T.
cudaError_t run_update(EncodeTensorMap encode, UpdateParameters& parameters, const Product* products, int count,
                       int device, cudaStream_t stream) {
  for (int p = 0; p < count; ++p) {
    const cudaError_t error = map_weights(encode, parameters.weights, products[p], parameters.launch.pointers);
    if (error != cudaSuccess) return error;
  }
  auto kernel = product_kernel<Layouts::Update, Result::Weights, float>;
  if (products[0].epilogue.weight == Real::Float16) kernel = product_kernel<Layouts::Update, Result::Weights, __half>;
  if (products[0].epilogue.weight == Real::BFloat16)
    kernel = product_kernel<Layouts::Update, Result::Weights, __nv_bfloat16>;
  return run(kernel, parameters, device, stream);
}

template <class Launch>
cudaError_t build(Builder<Launch>& builder, const Product* products, int count, const Pointers& pointers,
                  const Rates& rates) {
  for (int p = 0; p < count; ++p) {
    const cudaError_t error = builder.add(products[p], 0);
    if (error != cudaSuccess) return error;
  }
  builder.list_longest_first();
  builder.launch.pointers = pointers;
  builder.launch.rates = rates;
  return cudaSuccess;
}

}  // namespace

int norm_places(int64_t n) { return kSignals * triangle(pieces(static_cast<int>(n), kColumns)); }

cudaError_t launch_hopper(const Product* products, int count, const Pointers& pointers, const Rates& rates, int device,
                          cudaStream_t stream) {
  EncodeTensorMap encode = nullptr;
  cudaError_t error = find_encoder(&encode);
  if (error != cudaSuccess) return error;
  bool same = true, update = true;
  for (int p = 0; p < count; ++p) {
    if (products[p].terms[0].in_bytes || products[p].A_lower || products[p].B_lower) return cudaErrorInvalidValue;
    same = same && products[p].A_down == products[p].B_down;
    update = update && products[p].B_down;
  }
  const Epilogue& e = products[0].epilogue;
  if (e.weights) {
    if (!update) return cudaErrorInvalidValue;
    Builder<UpdateParameters::Launch> builder(encode);
    error = build(builder, products, count, pointers, rates);
    if (error != cudaSuccess) return error;
    UpdateParameters parameters{builder.launch, {}};
    return run_update(encode, parameters, products, count, device, stream);
  }
  using Some = Parameters<Result::Halves, false>;
  Builder<Some::Launch> builder(encode);
  error = build(builder, products, count, pointers, rates);
  if (error != cudaSuccess) return error;
  if (e.reads_C || e.writes_C) {
    if (!same) return cudaErrorInvalidValue;
    return run(product_kernel<Layouts::Same, Result::Float32, void>, Parameters<Result::Float32, false>{builder.launch},
               device, stream);
  }
  if (!same && !update) return cudaErrorInvalidValue;
  return run(same ? product_kernel<Layouts::Same, Result::Halves, void>
                  : product_kernel<Layouts::Update, Result::Halves, void>,
             Some{builder.launch}, device, stream);
}

cudaError_t launch_hopper_sequence(const std::vector<std::vector<Product>>& phases, int* tickets, int device,
                                   cudaStream_t stream, const int* runs) {
  EncodeTensorMap encode = nullptr;
  cudaError_t error = find_encoder(&encode);
  if (error != cudaSuccess) return error;
  using Some = Parameters<Result::Halves, true>;
  std::optional<Builder<Some::Launch>> builder;
  const auto launch = [&] {
    if (!builder || error != cudaSuccess) return;
    builder->list_tiles();
    builder->launch.ticket = tickets++;
    builder->launch.runs = runs;
    // The larger code for bytes makes the kernel 5 % slower where there are none.
    error = run(builder->has_bytes() ? sequence_kernel<true> : sequence_kernel<false>, Some{builder->launch}, device,
                stream);
    builder.reset();
  };
  std::map<int, int> done;  // by the size of the matrices
  for (const auto& products : phases) {
    std::map<int, int> more;
    for (const auto& product : products) {
      if (builder && !builder->has_room()) launch();
      if (!builder) builder.emplace(encode);
      if (error == cudaSuccess) error = builder->add(product, done[product.rows]);
      if (product.A_down || product.B_down) error = cudaErrorInvalidValue;
      more[product.rows] = kSignals * Builder<Some::Launch>::tiles_of(product);
    }
    for (const auto& [rows, signals] : more) done[rows] += signals;
  }
  launch();
  return error;
}

}  // namespace prism::cuda
