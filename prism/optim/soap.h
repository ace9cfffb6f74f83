#pragma once

#include "prism/optim/matrix.h"
#include "prism/optim/optimizer.h"

namespace prism {

// SOAP (Vyas et al. 2024): Adam in the eigenbasis of Shampoo's averages. For each matrix (m, n), t = 0, 1, …
//   t = 0: only the basis is made, W stays and does not decay. Then, in the basis of earlier gradients,
//   M ← β₁M + (1−β₁)G;   v ← β₂v + (1−β₂)(PᵀGQ)²;   U = P [ (PᵀMQ/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + ε) ] Qᵀ
//   L ← β_s L + (1−β_s)GGᵀ;   R ← β_s R + (1−β_s)GᵀG
//   P, Q: eigenbases of L and R, by eigh at t = 0, then every `refresh` steps by one QR power step from their columns
//         sorted by qᵀLq (qᵀRq), largest first, v along with them
// A gradient never meets the basis it made: there PᵀGQ is diagonal, and Adam would make whole steps of the rounding
// noise beside the diagonal. M is kept in the coordinates of the weights (the authors rotate it), so a refresh cannot
// mix two bases. It is float32 whatever `state_dtype`: where gradients have low rank, the rounding of a 16-bit M along
// the other directions would be divided by a v that knows no rounding, and make updates of 10⁴ times the rate.
class SOAPOptions : public MatrixOptionsOf<SOAPOptions> {
 public:
  using Betas = std::pair<double, double>;
  SOAPOptions(double lr = 3e-3) : MatrixOptionsOf(lr, /*weight_decay=*/0.01) {}  // NOLINT: as torch's options

  PRISM_OPTION(SOAPOptions, Betas, betas, = {0.95, 0.95});
  PRISM_OPTION(SOAPOptions, double, shampoo_beta, = 0.95);
  PRISM_OPTION(SOAPOptions, double, eps, = 1e-8);
  PRISM_OPTION(SOAPOptions, int64_t, refresh, = 10);

 public:
  std::string name() const override { return "soap"; }
  std::vector<Field> fields(at::IntArrayRef shape) const override;
  Tensor direction(const Tensor& G, State& state) const override;
  Tensor rests(const State& state) const override { return state["step"].eq(0); }
  void check() const override;
  std::vector<Option> table() override;
};

struct SOAPState {
  Tensor step;        // (B): t
  Tensor M, v;        // (B, …, m, n)
  Tensor L, R, P, Q;  // (B, …, m, m) and (B, …, n, n)
};

Tensor soap_direction(const Tensor& G, SOAPState& state, const SOAPOptions& options);

class SOAP : public OptimizerOf<SOAPOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace prism
