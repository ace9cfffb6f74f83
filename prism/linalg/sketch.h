#pragma once

#include "prism/linalg/shaping.h"

namespace prism {

// Updates the dense average Ĉ ← βĈ + (1−β)DᵀD of an innovation covariance in place; D (…, m, n). C and scale are zero
// before the first update. The scale follows the size of C, so that Ĉ = scale²·C neither overflows nor vanishes.
void average_update(Covariance& covariance, const Tensor& D, double beta);

// A low-rank approximation of the same average: Ĉ ≈ FᵀF + tail²·(I − VᵀV), where V holds the normalized rows of F.
struct Sketch {
  Tensor F;     // (…, r, n): rows √λ_i·v_iᵀ, largest first
  Tensor tail;  // (…, 1, 1): the standard deviation in every direction outside the rows of F
};

// Sets Ĉ to the top r eigenpairs of βĈ + (1−β)DᵀD, in place. The rest becomes the isotropic tail over the complement,
// so that the trace is kept and no noisy direction goes undamped. With r = n nothing is cut: this is the dense average.
// The kept eigenvalues are not shrunk by λ_{r+1}, unlike in the method of frequent directions: the tail makes λ_{r+1}
// large, and shrinking at each step moved all of Ĉ into the tail (β 0.99, n 48, r 12: error 1.0 of ‖Ĉ‖, without it
// 0.01–0.07; docs/accuracy.md).
void sketch_update(Sketch& sketch, const Tensor& D, double beta);

// The same by one step of subspace iteration on A = βĈ + (1−β)DᵀD: the new rows span A·V, and Ĉ takes the eigenpairs of
// A within that span. A and its n × n eigenvectors are never formed: a step costs four products of D with n × r
// matrices, a QR decomposition (n, r) and an eigendecomposition (r, r). The basis follows the top of the average with a
// delay, and is exact once A stops turning. The trace is kept as above, and r = n is the dense average.
void subspace_update(Sketch& sketch, const Tensor& D, double beta);

// FᵀF + tail²·(I − VᵀV) as a dense matrix.
Covariance sketch_covariance(const Sketch& sketch);

}  // namespace prism
