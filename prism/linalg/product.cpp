#include "prism/linalg/product.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "prism/linalg/host_product.h"
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

// Calls multiply(b) for each matrix of a batch: one matrix per thread while there are enough of them; otherwise the
// products themselves run in parallel.
template <class Function>
void for_each_matrix(int64_t count, Function&& multiply) {
  const auto each = [&](int64_t first, int64_t last) {
    at::NoGradGuard no_grad;
    for (int64_t b = first; b < last; ++b) multiply(b);
  };
  if (count >= at::get_num_threads()) {
    at::parallel_for(0, count, 1, each);
  } else {
    each(0, count);
  }
}

// Scratch memory for A·B, for batches of equal shape.
Tensor scratch_for_product(const Tensor& A, const Tensor& B) {
  auto shape = A.sizes().vec();
  shape.back() = B.size(-1);
  return scratch(shape, A.options());
}

// A·B for batches of equal shape, or its lower part, mirrored.
Tensor host_product(const Tensor& A, const Tensor& B, Part part) {
  const int64_t m = A.size(-2), k = A.size(-1), n = B.size(-1);
  Tensor C = scratch_for_product(A, B);
  if (C.numel() == 0) return C;
  if (k == 0) return C.zero_();
  // Plain pointers do not see the bit by which a view of a conjugate is negated.
  const Tensor left = A.resolve_neg().reshape({-1, m, k}), right = B.resolve_neg().reshape({-1, k, n});
  AT_DISPATCH_FLOATING_TYPES(C.scalar_type(), "product", [&] {
    const auto strided = [](const Tensor& X, int64_t b) {
      return Strided<scalar_t>{X.const_data_ptr<scalar_t>() + b * X.stride(0), X.stride(1), X.stride(2)};
    };
    auto* data = C.mutable_data_ptr<scalar_t>();
    for_each_matrix(left.size(0), [&](int64_t b) {
      scalar_t* result = data + b * m * n;
      multiply(HostProduct<scalar_t>{
          .A = strided(left, b), .B = strided(right, b), .C = result, .m = m, .n = n, .k = k, .part = part});
      if (part == Part::Lower) mirror(result, n);
    });
  });
  return C;
}

// A symmetric product, by calls of ATen for panels of rows of its lower part.
Tensor product_by_panels(const Tensor& A, const Tensor& B) {
  const int64_t n = A.size(-2);
  Tensor C = scratch_for_product(A, B);
  const Tensor left = A.reshape({-1, n, A.size(-1)}), right = B.reshape({-1, B.size(-2), n}), out = C.view({-1, n, n});
  for_each_matrix(left.size(0), [&](int64_t b) {
    for (int64_t begin = 0; begin < n; begin += kPanel) {
      const int64_t rows = std::min(kPanel, n - begin);
      Tensor block = out[b].narrow(0, begin, rows).narrow(1, 0, begin + rows);
      at::mm_out(block, left[b].narrow(0, begin, rows), right[b].narrow(1, 0, begin + rows));
    }
    AT_DISPATCH_FLOATING_TYPES(C.scalar_type(), "symmetric_product",
                               [&] { mirror(out[b].mutable_data_ptr<scalar_t>(), n); });
  });
  return C;
}

bool is_for_host(const Tensor& A) { return A.is_cpu() && has_host_product() && A.scalar_type() == compute_type(A); }

Tensor whole_product(const Tensor& A, const Tensor& B) {
  const bool same_batch = A.sizes().slice(0, A.dim() - 2) == B.sizes().slice(0, B.dim() - 2);
  if (same_batch && is_for_host(A)) return host_product(A, B, Part::Whole);
  if (!same_batch || !A.is_cpu() || A.dim() != 3) return A.matmul(B);
  Tensor C = scratch_for_product(A, B);
  return at::bmm_out(C, A, B);
}

// The kernels read and write through plain pointers: what does not fit must not reach them.
void check_factors(const char* who, const Tensor& A, const Tensor& B, bool sizes_fit) {
  TORCH_CHECK(sizes_fit, who, ": expected factors whose sizes fit, got shapes ", A.sizes(), " and ", B.sizes());
  TORCH_CHECK(A.device() == B.device(), who, ": expected factors on one device, got ", A.device(), " and ", B.device());
}

}  // namespace

Tensor product(const Tensor& A, const Tensor& B) {
  check_factors("product", A, B, A.dim() >= 2 && B.dim() >= 2 && A.size(-1) == B.size(-2));
  const bool is_transposed = A.is_cpu() && A.stride(-1) != 1 && A.stride(-2) == 1;
  return is_transposed ? whole_product(B.mT(), A.mT()).mT() : whole_product(A, B);
}

Tensor symmetric_product(const Tensor& A, const Tensor& B) {
  check_factors("symmetric_product", A, B, A.dim() >= 2 && A.sizes() == B.mT().sizes());
  if (A.scalar_type() != compute_type(A)) return A.matmul(B);  // 16 bits: making it symmetric would round again
  if (is_for_host(A)) return host_product(A, B, Part::Lower);
  if (!A.is_cpu() || A.size(-2) < kFewestRows || A.numel() == 0) return symmetrized(A.matmul(B));
  return product_by_panels(A, B);
}

}  // namespace prism
