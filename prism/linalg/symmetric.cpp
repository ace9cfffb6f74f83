#include "prism/linalg/symmetric.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "prism/linalg/lower_product.h"
#include "prism/linalg/scratch.h"

namespace prism {
namespace {

constexpr int64_t kPanel = 128;      // rows of a panel; thinner ones save more products but run slower
constexpr int64_t kFewestRows = 64;  // below it half a product costs more than a whole one
constexpr int64_t kTile = 16;        // of the mirror: a cache line of float32

// B ← Aᵀ for a tile of A, both with row stride n. It goes through a buffer, so that reads and writes are contiguous.
template <class Real>
void transpose(const Real* A, Real* B, int64_t n, int64_t rows, int64_t columns) {
  Real tile[kTile][kTile];
  for (int64_t y = 0; y < rows; ++y) std::copy_n(A + y * n, columns, tile[y]);
  for (int64_t x = 0; x < columns; ++x) {
    for (int64_t y = 0; y < rows; ++y) B[x * n + y] = tile[y][x];
  }
}

// Copies the elements below the diagonal of C to those above it.
template <class Real>
void mirror(Real* C, int64_t n) {
  for (int64_t i = 0; i < n; i += kTile) {
    const int64_t rows = std::min(kTile, n - i);
    for (int64_t j = 0; j < i; j += kTile) transpose(C + i * n + j, C + j * n + i, n, rows, kTile);
    for (int64_t y = i; y < i + rows; ++y) {
      for (int64_t x = i; x < y; ++x) C[x * n + y] = C[y * n + x];
    }
  }
}

// As lower_product(), by calls of ATen for panels of rows.
void multiply_by_panels(const Tensor& A, const Tensor& B, const Tensor& C) {
  const int64_t n = A.size(0);
  for (int64_t begin = 0; begin < n; begin += kPanel) {
    const int64_t rows = std::min(kPanel, n - begin);
    Tensor block = C.narrow(0, begin, rows).narrow(1, 0, begin + rows);
    at::mm_out(block, A.narrow(0, begin, rows), B.narrow(1, 0, begin + rows));
  }
}

void multiply(const Tensor& A, const Tensor& B, const Tensor& C) {
  AT_DISPATCH_FLOATING_TYPES(C.scalar_type(), "symmetric_product", [&] {
    auto* data = C.mutable_data_ptr<scalar_t>();
    const auto strided = [](const Tensor& X) {
      return Strided<scalar_t>{X.const_data_ptr<scalar_t>(), X.stride(0), X.stride(1)};
    };
    if (has_lower_product()) {
      lower_product(strided(A), strided(B), data, A.size(0), A.size(1));
    } else {
      multiply_by_panels(A, B, C);
    }
    mirror(data, C.size(0));
  });
}

}  // namespace

Tensor symmetric_product(const Tensor& A, const Tensor& B) {
  const int64_t n = A.size(-2);
  if (A.scalar_type() != compute_type(A)) return A.matmul(B);  // 16 bits: making it symmetric would round again
  if (!A.is_cpu() || n < kFewestRows || A.numel() == 0) return symmetrized(A.matmul(B));
  const Tensor left = A.reshape({-1, n, A.size(-1)});
  const Tensor right = B.reshape({-1, B.size(-2), n});
  Tensor C = scratch({left.size(0), n, n}, A.options());
  // One matrix per thread while there are enough of them; otherwise the products themselves run in parallel.
  const auto each = [&](int64_t first, int64_t last) {
    at::NoGradGuard no_grad;
    for (int64_t b = first; b < last; ++b) multiply(left[b], right[b], C[b]);
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
