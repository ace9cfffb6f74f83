#pragma once

#include "prism/linalg/batch.h"

namespace prism {

// Matrix products of batches, with results in scratch memory (scratch.h) on the CPU. If the processor can, the CPU takes
// the products of host_product.h, whose bits depend on nothing but the operands. They cannot be differentiated.

// A·B as matmul gives it. On the CPU the product with a transposed A is stored as A is: its transpose is contiguous.
Tensor product(const Tensor& A, const Tensor& B);

// A·B for a product that is known to be symmetric: XᵀX, or two polynomials of the same symmetric matrix. The result is
// exactly symmetric (except for 16-bit types). The CPU computes only the blocks up to the diagonal, about half of the
// work, and mirrors them. A (…, n, k) and B (…, k, n) have the same type and batch.
Tensor symmetric_product(const Tensor& A, const Tensor& B);

}  // namespace prism
