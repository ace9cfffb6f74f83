#include "prism/linalg/sketch.h"

#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

namespace prism {
namespace {

// scale²·C ← β·scale²·C + (1−β)·DᵀD, returned as a pair with the scale nearest its content.
Covariance averaged(const Covariance& old, const Tensor& D, double beta) {
  const auto type = compute_type(D);
  const Tensor content = old.scale.to(at::kDouble) * largest_magnitude(old.C).sqrt();
  const Tensor scale = nearest_power_of_two(at::maximum(content, largest_magnitude(D)));
  const Tensor X = D.to(type).div(scale.to(type));
  const Tensor shrink = old.scale.to(at::kDouble).div(scale).square() * beta;
  return {old.C.to(type).mul(shrink.to(type)).add_(X.mT().matmul(X), 1 - beta), scale};
}

}  // namespace

void average_update(Covariance& covariance, const Tensor& D, double beta) {
  check_matrix("average_update", D);
  const Covariance next = averaged(covariance, D, beta);
  covariance.C.copy_(next.C);
  covariance.scale.copy_(next.scale);
}

Covariance sketch_covariance(const Sketch& sketch) {
  const auto type = compute_type(sketch.F);
  const int64_t n = sketch.F.size(-1);
  const Tensor scale = nearest_power_of_two(at::maximum(largest_magnitude(sketch.F), largest_magnitude(sketch.tail)));
  const Tensor F = sketch.F.to(type).div(scale.to(type));
  const Tensor variance = sketch.tail.to(type).div(scale.to(type)).square();
  const Tensor V = F / nonzero_or_one(at::linalg_vector_norm(F, 2, {-1}, /*keepdim=*/true));
  const Tensor complement = at::eye(n, F.options()) - V.mT().matmul(V);
  return {F.mT().matmul(F).add_(complement * variance), scale};
}

void sketch_update(Sketch& sketch, const Tensor& D, double beta) {
  check_matrix("sketch_update", D);
  const int64_t r = sketch.F.size(-2);
  const int64_t n = sketch.F.size(-1);
  TORCH_CHECK(D.size(-1) == n && r >= 1 && r <= n, "sketch_update: expected D with ", n, " columns and a rank from 1 to ", n,
              ", got D of shape ", D.sizes(), " and rank ", r);
  const Covariance average = averaged(sketch_covariance(sketch), D, beta);
  const auto [ascending, vectors] = at::linalg_eigh(symmetrised(average.C.to(at::kDouble)));
  const Tensor lambda = ascending.clamp_min(0);
  const Tensor cut = lambda.narrow(-1, 0, n - r);                                     // what does not fit
  const Tensor kept = lambda.narrow(-1, n - r, r).flip(-1);
  const Tensor shift = r < n ? cut.narrow(-1, n - r - 1, 1) : at::zeros_like(kept.narrow(-1, 0, 1));  // λ_{r+1}
  const Tensor V = vectors.narrow(-1, n - r, r).flip(-1).mT();
  sketch.F.copy_(V * (kept - shift).sqrt().unsqueeze(-1) * average.scale);
  if (r == n) {
    sketch.tail.zero_();
  } else {
    const Tensor lost = cut.sum(-1, true) + shift * static_cast<double>(r);
    sketch.tail.copy_(lost.div(static_cast<double>(n - r)).sqrt().unsqueeze(-1) * average.scale);
  }
}

}  // namespace prism
