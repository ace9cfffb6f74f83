#pragma once

#include "prism/linalg/batch.h"

namespace prism {

// A·B for a product that is known to be symmetric: XᵀX, or two polynomials of the same symmetric matrix. The result is
// exactly symmetric (but for 16-bit types). On the CPU only the blocks up to the diagonal are computed, about half of
// the work, and mirrored. A (…, n, k), B (…, k, n), of one type and one batch.
Tensor symmetric_product(const Tensor& A, const Tensor& B);

}  // namespace prism
