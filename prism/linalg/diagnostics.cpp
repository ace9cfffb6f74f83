#include "prism/linalg/diagnostics.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <c10/util/Exception.h>

namespace prism {

Spectrum spectrum(const Tensor& T, const Tensor& D, const Tensor& O, double gamma, Side side) {
  check_matrix("spectrum", T);
  TORCH_CHECK(D.sizes() == T.sizes() && O.sizes() == T.sizes(), "spectrum: T, D and O must have one shape, got ", T.sizes(), ", ",
              D.sizes(), " and ", O.sizes());
  TORCH_CHECK_VALUE(side != Side::Both, "spectrum: side 'both' has no gain law; use left or right");
  if (resolved_side(side, T.size(-2), T.size(-1)) == Side::Left) return spectrum(T.mT(), D.mT(), O.mT(), gamma, Side::Right);

  const Tensor scale = nearest_power_of_two(at::maximum(largest_magnitude(T), largest_magnitude(D)));
  const Tensor X = T.to(at::kDouble) / scale;
  const Tensor N = D.to(at::kDouble) / scale;
  const auto [U, sigma, Vh] = at::linalg_svd(at::cat({X, N * gamma}, -2), /*full_matrices=*/false);
  const auto norms = [&](const Tensor& A) { return at::linalg_vector_norm(A.matmul(Vh.mT()), 2, {-2}); };
  const Tensor signal = norms(X);
  const Tensor noise = norms(N);
  const Tensor total = (signal.square() + noise.square() * (gamma * gamma)).sqrt();
  return {at::linalg_svdvals(X) * scale.squeeze(-1), (signal / noise).masked_fill(signal.eq(0), 0), norms(O.to(at::kDouble)),
          signal / nonzero_or_one(total)};
}

}  // namespace prism
