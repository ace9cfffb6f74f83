#pragma once

#include "prism/optim/matrix.h"
#include "prism/optim/optimizer.h"

namespace prism {

// SOAP (Vyas et al. 2024): Adam in the eigenbasis of Shampoo's averages. For each matrix (m, n), t = 0, 1, …
//   t = 0: only computes the basis; W stays and does not decay. Then, in the basis of earlier gradients,
//   M ← β₁M + (1−β₁)G;   v ← β₂v + (1−β₂)(PᵀGQ)²;   U = P [ (PᵀMQ/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + ε) ] Qᵀ
//   L ← β_s L + (1−β_s)GGᵀ;   R ← β_s R + (1−β_s)GᵀG
//   P, Q: eigenbases of L and R, by eigh at t = 0, then every `refresh` steps by one QR power step from their columns
//         sorted by qᵀLq (qᵀRq), largest first; v is sorted with them
// A gradient is never used in the basis made from itself: there PᵀGQ is diagonal, and Adam would take full-size steps
// along the rounding noise beside the diagonal. M is kept in the coordinates of the weights (the authors rotate it), so
// a refresh cannot mix two bases. It is float32 whatever `state_dtype`: if gradients have low rank, the rounding errors
// of a 16-bit M along the other directions would be divided by a v without them, and give updates of 10⁴ times the
// rate.
class SOAPOptions : public MatrixOptions<SOAPOptions> {
 public:
  SOAPOptions(double lr = 3e-3) : MatrixOptions(lr, /*weight_decay=*/0.01) {}

  PRISM_OPTION(Betas, betas, Betas(0.95, 0.95), kFraction, "(β₁, β₂) of the first and second moments");
  PRISM_OPTION(double, shampoo_beta, 0.95, kFraction, "β of the averages L and R");
  PRISM_OPTION(double, eps, 1e-8, kNotNegative, "ε added to the denominator");
  PRISM_OPTION(int64_t, refresh, 10, kCount, "steps between two refreshes of the eigenbasis");

 public:
  std::string name() const override { return "soap"; }
  std::vector<Field> fields(at::IntArrayRef shape) const override;
  Operands operands(const Tensor& G, State& state) const override;
  Tensor direction(const Operands& operands, State& state) const override;
  std::vector<GramSide> gram_sides(at::IntArrayRef shape) const override {
    return {{shape[shape.size() - 2]}, {shape.back()}};
  }
  Tensor rests(const State& state) const override { return state["step"].eq(0); }
};

using SOAP = OptimizerOf<SOAPOptions>;

}  // namespace prism
