#include "prism/linalg/diagnostics.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <c10/util/Exception.h>

#include <limits>

namespace prism {
namespace {

constexpr double kRounding = 32 * std::numeric_limits<double>::epsilon();

Tensor column_norms(const Tensor& A) { return at::linalg_vector_norm(A, 2, {-2}); }

void check_spectrum(const Tensor& T, const Tensor& O, Side side) {
  check_matrix("spectrum", T);
  TORCH_CHECK(O.sizes() == T.sizes(), "spectrum: O must have the shape of T, ", T.sizes(), ", got ", O.sizes());
  TORCH_CHECK_VALUE(side != Side::Both, "spectrum: side 'both' has no gain law; use left or right");
}

// Computes the spectrum from the energies along the directions V (…, n, k) of T divided by `scale`.
Spectrum from_energies(const Tensor& T, const Tensor& O, const Tensor& V, const Tensor& noise, const Tensor& scale,
                       double gamma) {
  const Tensor X = T.to(at::kDouble) / scale;
  const Tensor measured = column_norms(X.matmul(V));
  const Tensor energy = (measured.square() + noise.square() * (gamma * gamma)).sqrt();
  // In the null space the signal is only rounding error, and its SNR would be random.
  const Tensor vanished = energy.le(at::linalg_vector_norm(energy, 2, {-1}, /*keepdim=*/true) * kRounding);
  const Tensor signal = measured.masked_fill(vanished, 0);
  return {at::linalg_svdvals(X) * scale.squeeze(-1), (signal / noise).masked_fill(signal.eq(0), 0),
          column_norms(O.to(at::kDouble).matmul(V)), signal / nonzero_or_one(energy), energy * scale.squeeze(-1)};
}

}  // namespace

Spectrum spectrum(const Tensor& T, const Tensor& D, const Tensor& O, double gamma, Side side) {
  check_spectrum(T, O, side);
  TORCH_CHECK(D.sizes() == T.sizes(), "spectrum: D must have the shape of T, ", T.sizes(), ", got ", D.sizes());
  if (resolved_side(side, T.size(-2), T.size(-1)) == Side::Left)
    return spectrum(T.mT(), D.mT(), O.mT(), gamma, Side::Right);
  const Tensor scale = nearest_power_of_two(at::maximum(largest_magnitude(T), largest_magnitude(D)), at::kDouble);
  const Tensor N = D.to(at::kDouble) / scale;
  const Tensor Vh =
      std::get<2>(at::linalg_svd(at::cat({T.to(at::kDouble) / scale, N * gamma}, -2), /*full_matrices=*/false));
  return from_energies(T, O, Vh.mT(), column_norms(N.matmul(Vh.mT())), scale, gamma);
}

Spectrum spectrum(const Tensor& T, const Covariance& covariance, const Tensor& O, double gamma, Side side) {
  check_spectrum(T, O, side);
  if (resolved_side(side, T.size(-2), T.size(-1)) == Side::Left)
    return spectrum(T.mT(), covariance, O.mT(), gamma, Side::Right);
  const Tensor noise_scale = covariance.scale.to(at::kDouble);
  const Tensor scale = nearest_power_of_two(at::maximum(largest_magnitude(T), noise_scale), at::kDouble);
  const Tensor X = T.to(at::kDouble) / scale;
  const Tensor C = covariance.C.to(at::kDouble) * (noise_scale / scale).square();
  const Tensor V = std::get<1>(eigh(X.mT().matmul(X) + C * (gamma * gamma))).flip(-1);
  const Tensor noise = (V * C.matmul(V)).sum(-2).clamp_min(0).sqrt();
  return from_energies(T, O, V, noise, scale, gamma);
}

}  // namespace prism
