#include "prism/model/kernels_cuda.cuh"

namespace prism::model::cuda {
namespace {

constexpr int kPieceRows = 32;  // rows of x, in the order of their ids, that a block adds

__device__ bool starts_row(const int* ids, int64_t i) { return i == 0 || ids[i - 1] != ids[i]; }

// Adds the rows of a piece. A row of W whose rows of x all lie in the piece is complete. The sums of the others go to
// `parts`: first[piece] for the row of W that began in an earlier piece, last[piece] for one that goes on in the next.
// Each thread has four adjacent columns.
__global__ void __launch_bounds__(kThreads) add_pieces_kernel(AddRows k) {
  __shared__ int ids[kPieceRows + 2];  // with the neighbors on both sides
  __shared__ int64_t from[kPieceRows];
  const int64_t begin = blockIdx.x * int64_t{kPieceRows};
  const int count = static_cast<int>(min(int64_t{kPieceRows}, k.rows - begin));
  for (int i = threadIdx.x; i < count + 2; i += blockDim.x) {
    const int64_t at = begin + i - 1;
    ids[i] = at >= 0 && at < k.rows ? k.ids[at] : -1;
  }
  for (int i = threadIdx.x; i < count; i += blockDim.x) from[i] = k.order[begin + i];
  __syncthreads();
  const int64_t column = 4 * (blockIdx.y * int64_t{blockDim.x} + threadIdx.x);
  if (column >= k.width) return;
  constexpr int kAtOnce = 8;
  float4 sum = {};
  bool began_here = ids[0] != ids[1];
  for (int i = 0; i < count; i += kAtOnce) {
    float4 x[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (i + j < count) x[j] = load(k.x + from[i + j] * k.width + column);
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (i + j >= count) break;
      sum = sum + x[j];
      const int id = ids[i + j + 1];
      const bool ends_here = ids[i + j + 2] != id;
      if (!ends_here && i + j + 1 < count) continue;
      if (began_here && ends_here) {
        float* w = k.W + id * k.width + column;
        store(w, load(w) + sum);
      } else {
        // A row of W that fills the whole piece counts as first.
        store((began_here ? k.last : k.first) + blockIdx.x * k.width + column, sum);
      }
      sum = {};
      began_here = true;
    }
  }
}

// Adds the sums of the rows of W that lie in several pieces, in the order of the pieces. The block of the piece in which
// such a row begins adds all of it.
__global__ void __launch_bounds__(kThreads) join_pieces_kernel(AddRows k, int64_t pieces) {
  const int64_t end = (blockIdx.x + int64_t{1}) * kPieceRows;  // of the piece
  if (end >= k.rows) return;
  const int id = k.ids[end - 1];
  if (k.ids[end] != id) return;
  const int64_t begin = end - kPieceRows;
  if (k.ids[begin] == id && !starts_row(k.ids, begin)) return;  // began earlier
  const int64_t column = 4 * (blockIdx.y * int64_t{blockDim.x} + threadIdx.x);
  if (column >= k.width) return;
  float4 sum = load(k.last + blockIdx.x * k.width + column);
  for (int64_t piece = blockIdx.x + int64_t{1}; piece < pieces && k.ids[piece * kPieceRows] == id; ++piece) {
    sum = sum + load(k.first + piece * k.width + column);
  }
  float* w = k.W + id * k.width + column;
  store(w, load(w) + sum);
}

}  // namespace

int64_t pieces_of(int64_t rows) { return (rows + kPieceRows - 1) / kPieceRows; }

int add_rows(Target target, const AddRows& arguments) {
  const int64_t pieces = pieces_of(arguments.rows), groups = arguments.width / 4;
  const auto threads = static_cast<unsigned>(groups < kThreads ? groups : kThreads);
  const dim3 grid(static_cast<unsigned>(pieces), blocks_for(groups, threads));
  return on_device(target, [&](cudaStream_t stream) {
    add_pieces_kernel<<<grid, threads, 0, stream>>>(arguments);
    join_pieces_kernel<<<grid, threads, 0, stream>>>(arguments, pieces);
  });
}

}  // namespace prism::model::cuda
