#pragma once

#include "prism/optim/options.h"

namespace prism {

// What every method on matrices shares: which matrices it sees in a parameter.
class MatrixOptions : public Options {
 public:
  bool takes_matrices() const override { return true; }
  void check() const override;
  std::vector<Option> table() override;

  const std::vector<int64_t>& split() const { return split_; }
  const Fold& fold() const { return fold_; }

 protected:
  using Options::Options;

  std::vector<int64_t> split_;
  Fold fold_ = Fold::Auto;
};

template <class Self, class Base = MatrixOptions>
class MatrixOptionsOf : public OptionsOf<Self, Base> {
 public:
  using Base::split, Base::fold;
  Self& split(const std::vector<int64_t>& value) { return this->split_ = value, this->self(); }
  Self& fold(Fold value) { return this->fold_ = value, this->self(); }

 protected:
  using OptionsOf<Self, Base>::OptionsOf;
};

// The parts of a parameter that are optimized on their own, as views: one, or one per entry of `split` along the rows.
// Who: the optimizer and the parameter, for messages.
std::vector<Tensor> parts_of(const Tensor& parameter, const Options& options, const std::string& who);

// The shape in which a part's gradient, state and update are stacked: folded to (m, n) or (…, m, n) for matrix methods.
std::vector<int64_t> working_shape(const Tensor& part, const Options& options, const std::string& who);

// (…, m, n) → (…, rows, columns).
std::vector<int64_t> with_matrix_shape(at::IntArrayRef shape, int64_t rows, int64_t columns);

// (B) → (B, 1, 1, …), to multiply a stack of `like`'s dimensions.
Tensor per_entry(const Tensor& values, const Tensor& like);

}  // namespace prism
