#pragma once

#include "prism/optim/options.h"

namespace prism {

// The options of every matrix rule: how a parameter becomes matrices.
template <class Self>
class MatrixOptions : public OptionsOf<Self> {
  using Rows = std::vector<int64_t>;

  PRISM_OPTION(Rows, split, {}, kAny, "rows of each part of a fused projection, e.g. [512, 128, 128] for q, k, v");
  PRISM_OPTION(Fold, fold, Fold::Auto, kAny,
               "tensors of more dimensions: flatten (out, in·k…), batch (…, m, n); auto: 3-D batch, 4-D flatten");

 public:
  std::optional<Folding> folding() const override { return Folding{split(), fold()}; }
  void check() const override {
    Options::check();
    for (const int64_t rows : split()) {
      TORCH_CHECK_VALUE(rows > 0, this->name(), ": split takes the number of rows of each part, got ", rows);
    }
  }

 protected:
  using OptionsOf<Self>::OptionsOf;
};

// The dimension of a parameter that holds the rows of its matrices: 0, or the last but one for a batch of matrices.
int64_t rows_dimension(int64_t dimensions, const Folding& folding);

// Throws if a parameter of this shape is no matrix, or if `split` does not add up to its rows. `who` names the optimizer
// and the parameter in messages.
void check_matrix(at::IntArrayRef shape, const Folding& folding, const std::string& who);

// The shape in which the gradient, state and update of a part of this shape are stacked: folded to (m, n) or (…, m, n)
// for matrix rules.
std::vector<int64_t> working_shape(at::IntArrayRef shape, const std::optional<Folding>& folding);

// (…, m, n) → (…, rows, columns).
std::vector<int64_t> with_matrix_shape(at::IntArrayRef shape, int64_t rows, int64_t columns);

// (B) → (B, 1, 1, …), to multiply a stack of `like`'s dimensions.
Tensor per_entry(const Tensor& values, const Tensor& like);

}  // namespace prism
