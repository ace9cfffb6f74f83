#pragma once

#include "prism/optim/matrix.h"
#include "prism/optim/optimizer.h"

namespace prism {

// Shampoo (Gupta et al. 2018): for each matrix (m, n)
//   L ← L + GGᵀ;   R ← R + GᵀG          (β = 1, the paper's sum;  β < 1: averages, L ← βL + (1−β)GGᵀ)
//   W ← (1 − lr·λ)W − lr·L^(−1/4) G R^(−1/4)
// The paper starts L and R at εI. We start at zero and leave out the null space, so that without memory (β = 0) the
// update is the polar factor.
class ShampooOptions : public MatrixOptions<ShampooOptions> {
 public:
  ShampooOptions(double lr = 0.02) : MatrixOptions(lr, /*weight_decay=*/0) {}

  PRISM_OPTION(double, beta, 1, kUnit, "β of the averages L and R; 1 is the paper's sum");
  PRISM_OPTION(Solver, solver, Solver::Gram, kAny,
               "how fourth roots are computed; gram: coupled iteration, exact: eigh");

 public:
  std::string name() const override { return "shampoo"; }
  std::vector<Field> fields(at::IntArrayRef shape) const override;
  Tensor direction(const Operands& operands, State& state) const override;
  std::vector<GramSide> gram_sides(at::IntArrayRef shape) const override {
    return {{shape[shape.size() - 2]}, {shape.back()}};
  }
  void check() const override;
};

using Shampoo = OptimizerOf<ShampooOptions>;

}  // namespace prism
