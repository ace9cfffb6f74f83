// Matrix products on the CPU. Operands are packed into panels, and tiles of the result are summed in registers. Of
// symmetric products only the tiles that touch the lower triangle are computed; calls of a BLAS for each block would pack
// the same rows again and again. Whole products are here because some BLAS libraries use only half of the width of some
// processors' registers.

#include "prism/linalg/host_product.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <string>

#include "prism/io/clones.h"
#include "prism/linalg/scratch.h"

namespace prism {
namespace {

constexpr int64_t kDepth = 256;  // the depth of packed panels: one panel of B and one of A stay in the first caches
constexpr int64_t kBand = 240;   // most rows of A packed at a time; a multiple of the rows of every tile
constexpr int64_t kRun = 16;     // elements of a row that are packed at a time

// The registers of a tile: kRows × kVectors vectors of kBytes.
template <class Scalar, int kBytes, int kRows, int kVectors>
struct Tile {
  using Real = Scalar;
  typedef Real Vector __attribute__((vector_size(kBytes), may_alias));
  static constexpr int64_t kWidth = kBytes / sizeof(Real), kHeight = kRows, kColumns = kWidth * kVectors;

  // Computes the first kUsed vectors of each row of C = AB for packed panels of A (depth × kHeight) and B (depth × kColumns);
  // C has kColumns elements a row.
  template <int kUsed>
  PRISM_INLINE static void multiply(const Real* A, const Real* B, int64_t depth, Real* C) {
    Vector sums[kRows][kUsed] = {};
    for (int64_t p = 0; p < depth; ++p, A += kHeight, B += kColumns) {
      Vector b[kUsed];
#pragma GCC unroll 4
      for (int v = 0; v < kUsed; ++v) b[v] = *reinterpret_cast<const Vector*>(B + v * kWidth);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < kUsed; ++v) sums[r][v] += A[r] * b[v];
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kUsed; ++v) *reinterpret_cast<Vector*>(C + r * kColumns + v * kWidth) = sums[r][v];
    }
  }

  // Computes at least the first `count` columns of C.
  PRISM_INLINE static void multiply(const Real* A, const Real* B, int64_t depth, Real* C, int64_t count) {
    if (count > 2 * kWidth && kVectors > 2) return multiply<kVectors>(A, B, depth, C);
    if (count > kWidth) return multiply<2>(A, B, depth, C);
    multiply<1>(A, B, depth, C);
  }
};

// Packs `count` lines of `depth` elements into panels of kLines lines, of which each panel holds element 0 of all its
// lines, then element 1, and so on. The last panel is filled up with zeros.
template <int64_t kLines, class Real>
PRISM_INLINE void pack(const Real* X, int64_t count, int64_t line, int64_t depth, int64_t element, Real* out) {
  for (int64_t i = 0; i < count; i += kLines, X += kLines * line, out += kLines * depth) {
    const int64_t lines = std::min(kLines, count - i);
    if (lines < kLines) std::fill_n(out, kLines * depth, Real(0));
    if (line == 1 && lines == kLines) {
      for (int64_t p = 0; p < depth; ++p) std::copy_n(X + p * element, kLines, out + p * kLines);
      continue;
    }
    // A few elements of each line at a time, so that the part of `out` being written stays in the cache.
    for (int64_t p = 0; p < depth; p += kRun) {
      const int64_t end = std::min(p + kRun, depth);
      for (int64_t x = 0; x < lines; ++x) {
        for (int64_t q = p; q < end; ++q) out[q * kLines + x] = X[x * line + q * element];
      }
    }
  }
}

// Adds the columns [first, first + depth) of A times those rows of B to the rows [begin, end) of C.
template <class T, class Real>
PRISM_INLINE void multiply_band(const HostProduct<Real>& x, int64_t begin, int64_t end, int64_t first, int64_t depth,
                                const Real* B, Real* A) {
  alignas(64) Real tile[T::kHeight * T::kColumns];
  const bool lower = x.part == Part::Lower, adds = x.adds || first > 0;
  pack<T::kHeight>(x.A.data + begin * x.A.row + first * x.A.column, end - begin, x.A.row, depth, x.A.column, A);
  for (int64_t j = 0; j < (lower ? end : x.n); j += T::kColumns) {
    // Tiles whose last row is above the diagonal are skipped.
    const int64_t above = lower ? std::max<int64_t>(0, j - begin) / T::kHeight * T::kHeight : 0;
    for (int64_t i = begin + above; i < end; i += T::kHeight) {
      const int64_t rows = std::min(T::kHeight, end - i);
      const int64_t columns = std::min(T::kColumns, (lower ? i + rows : x.n) - j);
      T::multiply(A + (i - begin) * depth, B + j * depth, depth, tile, columns);
      for (int64_t r = 0; r < rows; ++r) {
        Real* row = x.C + (i + r) * x.n + j;
        const Real* sums = tile + r * T::kColumns;
        for (int64_t c = 0; c < columns; ++c) row[c] = (adds ? row[c] : 0) + x.factor * sums[c];
      }
    }
  }
}

template <class T, class Real>
PRISM_INLINE void pack_columns(const HostProduct<Real>& x, int64_t begin, int64_t end, int64_t first, int64_t depth,
                               Real* B) {
  pack<T::kColumns>(x.B.data + first * x.B.row + begin * x.B.column, end - begin, x.B.column, depth, x.B.row,
                    B + begin * depth);
}

// The two functions above for one level of instructions.
template <class Real>
struct Functions {
  int64_t rows, columns;  // of a tile
  void (*pack_columns)(const HostProduct<Real>&, int64_t begin, int64_t end, int64_t first, int64_t depth, Real* B);
  void (*multiply_band)(const HostProduct<Real>&, int64_t begin, int64_t end, int64_t first, int64_t depth,
                        const Real* B, Real* A);
};

#ifdef PRISM_HAS_LEVELS
#define PRISM_LEVEL(name, level, bytes, rows, vectors)                                                             \
  template <class Real>                                                                                            \
  struct name {                                                                                                    \
    using T = Tile<Real, bytes, rows, vectors>;                                                                    \
    [[gnu::target(level)]] static void pack(const HostProduct<Real>& x, int64_t begin, int64_t end, int64_t first, \
                                            int64_t depth, Real* B) {                                              \
      pack_columns<T>(x, begin, end, first, depth, B);                                                             \
    }                                                                                                              \
    [[gnu::target(level)]] static void band(const HostProduct<Real>& x, int64_t begin, int64_t end, int64_t first, \
                                            int64_t depth, const Real* B, Real* A) {                               \
      multiply_band<T>(x, begin, end, first, depth, B, A);                                                         \
    }                                                                                                              \
    static constexpr Functions<Real> functions = {T::kHeight, T::kColumns, pack, band};                            \
  }

PRISM_LEVEL(Avx512, "arch=x86-64-v4", 64, 8, 3);
PRISM_LEVEL(Avx2, "arch=x86-64-v3", 32, 6, 2);

template <class Real>
const Functions<Real>* functions_here() {
  static const std::string capability = at::get_cpu_capability();
  if (capability == "AVX512") return &Avx512<Real>::functions;
  return capability == "AVX2" ? &Avx2<Real>::functions : nullptr;
}
#else
template <class Real>
const Functions<Real>* functions_here() {
  return nullptr;
}
#endif

int64_t divided_up(int64_t x, int64_t y) { return (x + y - 1) / y; }

template <class Real>
void multiply_in_parallel(const HostProduct<Real>& x) {
  const auto* functions = functions_here<Real>();
  TORCH_INTERNAL_ASSERT(functions != nullptr);
  const int64_t columns = functions->columns, panels = divided_up(x.n, columns);
  const int64_t depth = divided_up(x.k, divided_up(x.k, kDepth));
  // Every thread takes the same number of bands of equal height. Those of a lower part are not equally long: it takes
  // every n-th of more.
  const int64_t threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  const int64_t share = x.part == Part::Whole ? threads : 4 * threads;
  const int64_t most = divided_up(divided_up(x.m, kBand), share) * share;
  const int64_t rows = divided_up(divided_up(x.m, most), functions->rows) * functions->rows;
  const int64_t bands = divided_up(x.m, rows);
  const auto allocate = [](int64_t count) { return scratch({count}, c10::CppTypeToScalarType<Real>::value); };
  const Tensor packed = allocate(panels * columns * depth);
  Real* B = packed.mutable_data_ptr<Real>();
  for (int64_t first = 0; first < x.k; first += depth) {
    const int64_t here = std::min(depth, x.k - first);
    at::parallel_for(0, panels, 8, [&](int64_t begin, int64_t end) {
      functions->pack_columns(x, begin * columns, std::min(end * columns, x.n), first, here, B);
    });
    at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
      const Tensor band = allocate(rows * here);
      for (int64_t thread = begin; thread < end; ++thread) {
        for (int64_t b = thread; b < bands; b += threads) {
          functions->multiply_band(x, b * rows, std::min((b + 1) * rows, x.m), first, here, B,
                                   band.mutable_data_ptr<Real>());
        }
      }
    });
  }
}

}  // namespace

bool has_host_product() { return functions_here<float>() != nullptr; }

bool is_host_product_faster() {
#ifdef PRISM_HAS_LEVELS
  static const bool other_maker = !__builtin_cpu_is("intel");
  return has_host_product() && other_maker;
#else
  return false;
#endif
}

void multiply(const HostProduct<float>& product) { multiply_in_parallel(product); }
void multiply(const HostProduct<double>& product) { multiply_in_parallel(product); }

}  // namespace prism
