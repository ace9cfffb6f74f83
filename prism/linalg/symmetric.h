#pragma once

#include "prism/linalg/batch.h"

namespace prism {

// A·B for a product that is known to be symmetric: XᵀX, or two polynomials of the same symmetric matrix. The result is
// exactly symmetric (except for 16-bit types). The CPU computes only the blocks up to the diagonal, about half of the
// work, and mirrors them. A (…, n, k) and B (…, k, n) have the same type and batch.
Tensor symmetric_product(const Tensor& A, const Tensor& B);

}  // namespace prism
