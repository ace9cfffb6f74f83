#pragma once

#include <ATen/core/Tensor.h>

// Matrix products of a model. The rows of x, y and their gradients are tokens; W is (outputs, inputs). Operands may be
// bfloat16, with float32 sums. On a CPU float32 products are those of linalg/host_product.h where these are faster.

namespace prism::model {

// y = x Wᵀ, or x Wᵀ + b.
at::Tensor product(const at::Tensor& x, const at::Tensor& W);
at::Tensor product(const at::Tensor& x, const at::Tensor& W, const at::Tensor& b);

// y ← x Wᵀ, y in float32 or the type of x.
void product_out(at::Tensor& y, const at::Tensor& x, const at::Tensor& W);

// dy W: the gradient of x in y = x Wᵀ.
at::Tensor input_gradient(const at::Tensor& dy, const at::Tensor& W);

// dx ← α dy W.
void input_gradient_out(at::Tensor& dx, const at::Tensor& dy, const at::Tensor& W, double alpha);

// dyᵀ x: the gradient of W in y = x Wᵀ.
at::Tensor weight_gradient(const at::Tensor& dy, const at::Tensor& x);

// dW ← α dyᵀ x, or dW ← dW + α dyᵀ x; dW in float32.
void weight_gradient_out(at::Tensor& dW, const at::Tensor& dy, const at::Tensor& x, double alpha, bool adds);

}  // namespace prism::model
