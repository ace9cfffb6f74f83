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

// The parts of a parameter that are optimized separately, as views: one, or one per entry of `split` along the rows.
// `who` names the optimizer and the parameter in messages.
std::vector<Tensor> parts_of(const Tensor& parameter, const std::optional<Folding>& folding, const std::string& who);

// The shape in which a part's gradient, state and update are stacked: folded to (m, n) or (…, m, n) for matrix rules.
std::vector<int64_t> working_shape(const Tensor& part, const std::optional<Folding>& folding, const std::string& who);

// (…, m, n) → (…, rows, columns).
std::vector<int64_t> with_matrix_shape(at::IntArrayRef shape, int64_t rows, int64_t columns);

// (B) → (B, 1, 1, …), to multiply a stack of `like`'s dimensions.
Tensor per_entry(const Tensor& values, const Tensor& like);

}  // namespace prism
