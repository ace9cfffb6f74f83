#include "prism/linalg/symmetric.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>

#include <algorithm>

namespace prism {
namespace {

constexpr int64_t kPanel = 128;     // rows of a panel; thinner ones save more products but run slower
constexpr int64_t kSmallest = 256;  // below it a panel costs more than it saves
constexpr int64_t kTile = 8;        // of the mirror

// B ← Aᵀ for a block of rows × columns, both with row stride n. Whole tiles go through a buffer, so that reads and
// writes are contiguous.
template <class Real>
void transpose(const Real* A, Real* B, int64_t n, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; i += kTile) {
    for (int64_t j = 0; j < columns; j += kTile) {
      if (i + kTile > rows || j + kTile > columns) {
        for (int64_t y = i; y < std::min(i + kTile, rows); ++y) {
          for (int64_t x = j; x < std::min(j + kTile, columns); ++x) B[x * n + y] = A[y * n + x];
        }
        continue;
      }
      Real tile[kTile][kTile];
      for (int64_t y = 0; y < kTile; ++y) {
        for (int64_t x = 0; x < kTile; ++x) tile[x][y] = A[(i + y) * n + j + x];
      }
      for (int64_t x = 0; x < kTile; ++x) std::copy_n(tile[x], kTile, B + (j + x) * n + i);
    }
  }
}

// Completes the rows [begin, end) of C, known up to the diagonal block: that block becomes the mean of its halves, the
// rest is mirrored.
template <class Real>
void mirror(Real* C, int64_t n, int64_t begin, int64_t end) {
  transpose(C + begin * n, C + begin, n, end - begin, begin);
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t j = begin; j < i; ++j) C[i * n + j] = C[j * n + i] = (C[i * n + j] + C[j * n + i]) / 2;
  }
}

void multiply_by_panels(const Tensor& A, const Tensor& B, Tensor& C) {
  const int64_t n = A.size(0);
  for (int64_t begin = 0; begin < n; begin += kPanel) {
    const int64_t rows = std::min(kPanel, n - begin);
    Tensor block = C.narrow(0, begin, rows).narrow(1, 0, begin + rows);
    at::mm_out(block, A.narrow(0, begin, rows), B.narrow(1, 0, begin + rows));
    AT_DISPATCH_FLOATING_TYPES(C.scalar_type(), "symmetric_product",
                               [&] { mirror(C.mutable_data_ptr<scalar_t>(), n, begin, begin + rows); });
  }
}

}  // namespace

Tensor symmetric_product(const Tensor& A, const Tensor& B) {
  const int64_t n = A.size(-2);
  if (A.scalar_type() != compute_type(A)) return A.matmul(B);  // 16 bits: making it symmetric would round again
  if (!A.is_cpu() || n < kSmallest || A.numel() == 0) return symmetrized(A.matmul(B));
  const Tensor left = A.reshape({-1, n, A.size(-1)});
  const Tensor right = B.reshape({-1, B.size(-2), n});
  Tensor C = at::empty({left.size(0), n, n}, A.options());
  // One matrix per thread while there are enough of them; otherwise the products themselves run in parallel.
  const auto each = [&](int64_t first, int64_t last) {
    at::NoGradGuard no_grad;
    for (int64_t b = first; b < last; ++b) {
      Tensor result = C[b];
      multiply_by_panels(left[b], right[b], result);
    }
  };
  if (left.size(0) >= at::get_num_threads()) {
    at::parallel_for(0, left.size(0), 1, each);
  } else {
    each(0, left.size(0));
  }
  auto shape = A.sizes().vec();
  shape.back() = n;
  return C.view(shape);
}

}  // namespace prism
