#include "prism/linalg/sketch.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <tuple>

#include "prism/linalg/product.h"

namespace prism {
namespace {

// Returns β·scale²·C + (1−β)·DᵀD as a pair of matrix and scale, with the scale nearest to its content.
Covariance averaged(const Covariance& old, const Tensor& D, double beta) {
  const auto type = compute_type(D);
  const Tensor content = old.scale.to(at::kDouble) * largest_magnitude(old.C).sqrt();
  const auto stored = old.scale.scalar_type() == at::kDouble ? type : at::kFloat;
  const Tensor scale = nearest_power_of_two(at::maximum(content, largest_magnitude(D)), stored);
  const Tensor X = divided(D, scale, type);
  // If C is zero, its scale is arbitrary and the ratio may overflow: keep nothing.
  const Tensor shrink = old.scale.to(at::kDouble).div(scale).square().mul(beta).masked_fill(content.eq(0), 0);
  return {old.C.to(type).mul(shrink.to(type)).add_(symmetric_product(X.mT(), X), 1 - beta), scale};
}

void check(const char* who, const Sketch& sketch, const Tensor& D) {
  check_matrix(who, D);
  const int64_t r = sketch.F.size(-2), n = sketch.F.size(-1);
  TORCH_CHECK(D.size(-1) == n && r >= 1 && r <= n, who, ": expected D with ", n, " columns and a rank from 1 to ", n,
              ", got D of shape ", D.sizes(), " and rank ", r);
}

// Directions to begin with: the same pseudorandom ones at every call.
Tensor start_directions(int64_t r, int64_t n, const at::TensorOptions& options) {
  return at::randn({r, n}, at::detail::createCPUGenerator(/*seed_val=*/1), at::kDouble).to(options);
}

}  // namespace

void average_update(Covariance& covariance, const Tensor& D, double beta) {
  check_matrix("average_update", D);
  TORCH_CHECK(covariance.C.size(-1) == D.size(-1), "average_update: expected D with ", covariance.C.size(-1),
              " columns, got D of shape ", D.sizes());
  const Covariance next = averaged(covariance, D, beta);
  covariance.C.copy_(next.C);
  covariance.scale.copy_(next.scale);
}

Covariance sketch_covariance(const Sketch& sketch) {
  const auto type = compute_type(sketch.F);
  const int64_t n = sketch.F.size(-1);
  const Tensor magnitude = at::maximum(largest_magnitude(sketch.F), largest_magnitude(sketch.tail));
  const Tensor scale = nearest_power_of_two(magnitude, type);
  const Tensor F = divided(sketch.F, scale, type);
  const Tensor variance = divided(sketch.tail, scale, type).square();
  const Tensor V = F / nonzero_or_one(at::linalg_vector_norm(F, 2, {-1}, /*keepdim=*/true));
  const Tensor complement = at::eye(n, F.options()) - V.mT().matmul(V);
  return {F.mT().matmul(F).add_(complement * variance), scale};
}

void sketch_update(Sketch& sketch, const Tensor& D, double beta) {
  check("sketch_update", sketch, D);
  const int64_t r = sketch.F.size(-2), n = sketch.F.size(-1);
  const Covariance average = averaged(sketch_covariance(sketch), D, beta);
  const auto [ascending, vectors] = eigh(average.C);
  const Tensor lambda = ascending.clamp_min(0);
  const Tensor kept = lambda.narrow(-1, n - r, r).flip(-1);
  const Tensor V = vectors.narrow(-1, n - r, r).flip(-1).mT();
  sketch.F.copy_(V * kept.sqrt().unsqueeze(-1) * average.scale);
  if (r == n) {
    sketch.tail.zero_();
  } else {
    const Tensor lost = lambda.narrow(-1, 0, n - r).mean(-1, true);
    sketch.tail.copy_(lost.sqrt().unsqueeze(-1) * average.scale);
  }
}

void subspace_update(Sketch& sketch, const Tensor& D, double beta) {
  check("subspace_update", sketch, D);
  const int64_t r = sketch.F.size(-2), n = sketch.F.size(-1);
  const auto type = compute_type(D);
  const Tensor content = at::maximum(largest_magnitude(sketch.F), largest_magnitude(sketch.tail));
  const Tensor scale = nearest_power_of_two(at::maximum(content, largest_magnitude(D)), type);
  const Tensor F = divided(sketch.F, scale, type), X = divided(D, scale, type);
  const Tensor variance = divided(sketch.tail, scale, type).square();
  const Tensor lengths = at::linalg_vector_norm(F, 2, {-1}, /*keepdim=*/true);
  const Tensor V = F / nonzero_or_one(lengths);
  const auto times_A = [&](const Tensor& Y) {
    const Tensor outside = Y - V.mT().matmul(V.matmul(Y));
    const Tensor old = F.mT().matmul(F.matmul(Y)) + outside * variance;
    return old * beta + X.mT().matmul(X.matmul(Y)) * (1 - beta);
  };
  // A row of zeros has no direction: it starts from a random one.
  const Tensor start = at::where(lengths.eq(0), start_directions(r, n, F.options()), V);
  const Tensor Q = std::get<0>(at::linalg_qr(times_A(start.mT())));
  const auto [ascending, vectors] = eigh(Q.mT().matmul(times_A(Q)));
  const Tensor lambda = ascending.clamp_min(0).flip(-1);
  const Tensor rows = Q.to(at::kDouble).matmul(vectors.flip(-1)).mT() * lambda.sqrt().unsqueeze(-1) * scale;
  const auto squares = [](const Tensor& Y) { return Y.to(at::kDouble).square().sum({-2, -1}, /*keepdim=*/true); };
  const Tensor outside = variance * (n - lengths.ne(0).sum({-2, -1}, /*keepdim=*/true));
  const Tensor trace = (squares(F) + outside) * beta + squares(X) * (1 - beta);
  const Tensor lost = (trace - lambda.sum(-1, true).unsqueeze(-1)).clamp_min(0) / std::max<int64_t>(n - r, 1);
  // Only now: F may share the memory of sketch.F.
  sketch.F.copy_(rows);
  sketch.tail.copy_(lost.sqrt() * scale * (r < n ? 1 : 0));
}

}  // namespace prism
