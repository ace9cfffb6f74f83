#pragma once

#include <cstdint>

namespace prism {

// A matrix in memory: element (i, j) is data[i·row + j·column].
template <class Real>
struct Strided {
  const Real* data;
  int64_t row, column;
};

// Returns true if this processor has the vector instructions that lower_product() is written for. The environment
// variable ATEN_CPU_CAPABILITY of torch limits them.
bool has_lower_product();

// Computes the elements of C = AB on and below the diagonal; those above it are left undefined. A is n × k and B k × n,
// C is n × n and contiguous. Sums run over k in a fixed order: the bits depend neither on strides, threads nor processor.
void lower_product(Strided<float> A, Strided<float> B, float* C, int64_t n, int64_t k);
void lower_product(Strided<double> A, Strided<double> B, double* C, int64_t n, int64_t k);

}  // namespace prism
