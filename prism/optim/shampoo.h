#pragma once

#include "prism/linalg/roots.h"
#include "prism/optim/matrix.h"
#include "prism/optim/optimizer.h"

namespace prism {

// Shampoo (Gupta et al. 2018): for each matrix (m, n)
//   L ← L + GGᵀ;   R ← R + GᵀG          (β = 1, the paper's sum;  β < 1: averages, L ← βL + (1−β)GGᵀ)
//   W ← (1 − lr·λ)W − lr·L^(−1/4) G R^(−1/4)
// Where the paper starts L and R at εI we start at zero and leave out the null space: without memory (β = 0) it is the
// polar factor.
class ShampooOptions : public MatrixOptionsOf<ShampooOptions> {
 public:
  ShampooOptions(double lr = 0.02) : MatrixOptionsOf(lr, /*weight_decay=*/0) {}  // NOLINT: as torch's options

  PRISM_OPTION(ShampooOptions, double, beta, = 1);
  PRISM_OPTION(ShampooOptions, Solver, solver, = Solver::Gram);  // of the roots: the coupled iteration, or eigh

 public:
  std::string name() const override { return "shampoo"; }
  std::vector<Field> fields(at::IntArrayRef shape) const override;
  Tensor direction(const Tensor& G, State& state) const override;
  void check() const override;
  std::vector<Option> table() override;
};

struct ShampooState {
  Tensor L, R;  // (B, …, m, m) and (B, …, n, n)
};

Tensor shampoo_direction(const Tensor& G, ShampooState& state, const ShampooOptions& options);

// C ← βC + (1−β)X, or C + X for β = 1.
void accumulate(Tensor& C, const Tensor& X, double beta);

class Shampoo : public OptimizerOf<ShampooOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};

}  // namespace prism
