#pragma once

#include <cstdint>

namespace prism {

// A matrix in memory: element (i, j) is data[i·row + j·column].
template <class Real>
struct Strided {
  const Real* data;
  int64_t row, column;
};

// Which elements of a product to compute: all, or those of a square on and below the diagonal.
enum class Part { Whole, Lower };

// C ← factor·AB, or C ← C + factor·AB; elements outside of the part are undefined. A is m × k, B k × n, and C m × n and
// contiguous.
template <class Real>
struct HostProduct {
  Strided<Real> A, B;
  Real* C;
  int64_t m, n, k;
  Part part = Part::Whole;
  Real factor = 1;
  bool adds = false;
};

// Returns true if this processor has the vector instructions that multiply() is written for. The environment variable
// ATEN_CPU_CAPABILITY of torch limits them.
bool has_host_product();

// Returns true if multiply() is also faster than torch's products of large float32 matrices. MKL, which torch calls, takes
// the widest instructions only on Intel's processors.
bool is_host_product_faster();

// Sums run over k in a fixed order: the bits depend neither on strides, threads, processor nor part.
void multiply(const HostProduct<float>& product);
void multiply(const HostProduct<double>& product);

}  // namespace prism
