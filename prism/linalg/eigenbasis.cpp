#include "prism/linalg/eigenbasis.h"

#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>

namespace prism {

Tensor eigenbasis(const Tensor& A) {
  check_matrix("eigenbasis", A);
  TORCH_CHECK(A.size(-1) == A.size(-2), "eigenbasis: expected square matrices, got shape ", A.sizes());
  const auto [lambda, V] = eigh(A);
  return V.flip(-1).to(A.scalar_type());
}

Tensor eigenbasis_step(const Tensor& A, const Tensor& Q) {
  check_matrix("eigenbasis_step", A);
  TORCH_CHECK(A.size(-1) == A.size(-2), "eigenbasis_step: expected square matrices, got shape ", A.sizes());
  TORCH_CHECK(Q.sizes() == A.sizes(), "eigenbasis_step: Q must have the shape of A, ", A.sizes(), ", got ", Q.sizes());
  const auto type = compute_type(A);
  // Scale first: A·Q of a tiny covariance would vanish in float32.
  const Tensor scaled = divided(A, nearest_power_of_two(largest_magnitude(A), type), type);
  const Tensor B = std::get<0>(at::linalg_qr(scaled.matmul(Q.to(type))));
  const Tensor cosine = (B * Q.to(type)).sum(-2, true);
  return at::where(cosine.lt(0), -B, B).to(Q.scalar_type());
}

}  // namespace prism
