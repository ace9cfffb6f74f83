#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

namespace prism::model {

// Matrix products whose operands may be bfloat16, with float32 sums.

// y ← x Wᵀ, y in float32 or the type of x.
inline void product_out(at::Tensor& y, const at::Tensor& x, const at::Tensor& W) {
  if (x.scalar_type() == y.scalar_type()) {
    at::mm_out(y, x, W.t());
  } else {
    at::mm_out(y, x, W.t(), at::kFloat);
  }
}

// dyᵀ x: the gradient of W in y = x Wᵀ.
inline at::Tensor weight_gradient(const at::Tensor& dy, const at::Tensor& x) {
  return x.scalar_type() == at::kFloat ? at::mm(dy.t(), x) : at::mm(dy.t(), x, at::kFloat);
}

// dW ← β dW + α dyᵀ x, dW in float32.
inline void add_weight_gradient_(at::Tensor& dW, const at::Tensor& dy, const at::Tensor& x, double beta, double alpha) {
  if (x.scalar_type() == at::kFloat) {
    at::addmm_out(dW, dW, dy.t(), x, beta, alpha);
  } else {
    at::addmm_out(dW, dW, dy.t(), x, at::kFloat, beta, alpha);
  }
}

}  // namespace prism::model
