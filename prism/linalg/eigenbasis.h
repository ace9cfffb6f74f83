#pragma once

#include "prism/linalg/batch.h"

namespace prism {

// Orthonormal eigenvectors of symmetric A (…, n, n) as columns, largest eigenvalue first (float64 eigh, returned in A's
// type).
Tensor eigenbasis(const Tensor& A);

// One QR power step from the basis Q: the orthonormal factor of A·Q, each column with the sign that keeps it near Q's.
// Repeated, it converges to eigenbasis(A). Directions in the null space of A (A·q = 0) get some orthonormal completion.
Tensor eigenbasis_step(const Tensor& A, const Tensor& Q);

}  // namespace prism
