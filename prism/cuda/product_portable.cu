// Products with the warp-wide matrix instructions of every device since compute capability 8.0. A block computes one
// tile of a result.

#include "prism/cuda/portable_results.cuh"

namespace prism::cuda {
namespace {

constexpr int kBand = 8;  // rows of tiles that share their columns' operands in the cache

// A block has at most 99 KiB of shared memory: devices of compute capability 8.6 and 8.9 have no more.
using Large = Shape<128, 128, 2, 2, 64, 3, 2>;
using Medium = Shape<128, 64, 2, 2, 64, 3, 3>;
using Small = Shape<64, 64, 2, 2, 64, 3, 4>;

__host__ __device__ int pieces(int size, int piece) { return (size + piece - 1) / piece; }

// The tiles in a row of tiles: in symmetric results those that touch the lower triangle.
template <class Shape>
__host__ __device__ int tiles_in_row(const Product& product, int row) {
  const int columns = product.symmetric ? min((row + 1) * Shape::kRows, product.columns) : product.columns;
  return pieces(columns, Shape::kColumns);
}

// The place of tile `index`: row after row in the lower triangle, or in bands of rows.
template <class Shape>
__device__ Place place_of_tile(const Launch& launch, int index) {
  int row = 0, column = index;
  if (launch.product.symmetric) {
    for (; column >= tiles_in_row<Shape>(launch.product, row); ++row)
      column -= tiles_in_row<Shape>(launch.product, row);
  } else {
    const int columns = pieces(launch.product.columns, Shape::kColumns);
    const int band = index / (kBand * columns) * kBand, in_band = index - band * columns;
    const int rows = min(kBand, pieces(launch.product.rows, Shape::kRows) - band);
    row = band + in_band % rows, column = in_band / rows;
  }
  return {row * Shape::kRows, column * Shape::kColumns};
}

template <class Shape, bool ADown, bool BDown, bool UpdatesWeights>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    portable_kernel(const __grid_constant__ Launch launch) {
  const Product& product = launch.product;
  const Epilogue& e = product.epilogue;
  const int matrix = static_cast<int>(blockIdx.y), warp = static_cast<int>(threadIdx.x) / kWarp;
  if (leaves_C(e, matrix) || (launch.runs != nullptr && *launch.runs == 0)) return;
  if (UpdatesWeights && !applies(launch.rates.apply)) return;
  const Place tile = place_of_tile<Shape>(launch, static_cast<int>(blockIdx.x));
  const Place in_tile{warp / Shape::kWarpsAcross * Shape::kWarpRows, warp % Shape::kWarpsAcross * Shape::kWarpColumns};
  WarpSums<Shape> sums = {};
  multiply<Shape, ADown, BDown>(sums, product, matrix, tile, in_tile, [&] {
    if constexpr (UpdatesWeights) prefetch_weights<Shape>(launch, matrix, tile);
  });
  const Place here{tile.row + in_tile.row, tile.column + in_tile.column};
  const Factors factors(e, matrix);
  if constexpr (UpdatesWeights) {
    switch (e.weight) {
      case Real::Float32:
        return finish<Shape>(sums, product, here, Weights<float>(launch, factors, matrix));
      case Real::Float16:
        return finish<Shape>(sums, product, here, Weights<__half>(launch, factors, matrix));
      case Real::BFloat16:
        return finish<Shape>(sums, product, here, Weights<__nv_bfloat16>(launch, factors, matrix));
    }
  } else {
    finish<Shape>(sums, product, here, Matrices{launch, factors, matrix});
  }
}

template <class Shape>
int tiles_of_one(const Product& product) {
  int tiles = 0;
  for (int row = 0; row * Shape::kRows < product.rows; ++row) tiles += tiles_in_row<Shape>(product, row);
  return tiles;
}

template <class Shape>
cudaError_t launch_shape(const Product& product, const Pointers& pointers, const Rates& rates, cudaStream_t stream,
                         const int* runs) {
  const auto choose = [&]<bool ADown, bool BDown>() {
    return product.epilogue.weights ? portable_kernel<Shape, ADown, BDown, true>
                                    : portable_kernel<Shape, ADown, BDown, false>;
  };
  const auto kernel =
      product.A_down
          ? (product.B_down ? choose.template operator()<true, true>() : choose.template operator()<true, false>())
          : (product.B_down ? choose.template operator()<false, true>() : choose.template operator()<false, false>());
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes);
  if (error != cudaSuccess) return error;
  const Launch launch{product, pointers, rates, runs};
  kernel<<<dim3(tiles_of_one<Shape>(product), product.count), Shape::kThreads, Shape::kSharedBytes, stream>>>(launch);
  return cudaGetLastError();
}

struct Device {
  int processors = 0, shared_bytes = 0;  // the latter of one multiprocessor
};

// Returns true if a multiprocessor holds two blocks: one of them computes while the other waits.
template <class Shape>
bool fits_twice(const Device& device) {
  constexpr int kReserved = 1024;  // bytes of each block that CUDA takes
  return 2 * (Shape::kSharedBytes + kReserved) <= device.shared_bytes;
}

// Launches a product with the tiles that were fastest on an H200: large ones for large products, and small ones where
// larger ones would leave multiprocessors idle. The result does not depend on them.
cudaError_t launch_one(const Product& product, const Pointers& pointers, const Rates& rates, const Device& device,
                       cudaStream_t stream, const int* runs) {
  const int k = product.terms[0].k + (product.term_count > 1 ? product.terms[1].k : 0);
  const int64_t tiles = int64_t{tiles_of_one<Medium>(product)} * product.count / device.processors;
  const auto launch = tiles < 8 || !fits_twice<Medium>(device)                ? launch_shape<Small>
                      : tiles < 16 || k <= 1024 || !fits_twice<Large>(device) ? launch_shape<Medium>
                                                                              : launch_shape<Large>;
  return launch(product, pointers, rates, stream, runs);
}

}  // namespace

cudaError_t launch_portable(const Product* products, int count, const Pointers& pointers, const Rates& rates,
                            cudaStream_t stream, const int* runs) {
  int current = 0;
  Device device;
  cudaError_t error = cudaGetDevice(&current);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&device.processors, cudaDevAttrMultiProcessorCount, current);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&device.shared_bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, current);
  for (int p = 0; p < count && error == cudaSuccess; ++p)
    error = launch_one(products[p], pointers, rates, device, stream, runs);
  return error;
}

}  // namespace prism::cuda
