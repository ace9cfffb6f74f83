#include "prism/model/products.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include "prism/linalg/host_product.h"

namespace prism::model {
namespace {

using at::Tensor;

constexpr int64_t kFewestRows = 32;  // below it packing the weights costs too much, as in generation

bool is_for_host(const Tensor& A) {
  return A.is_cpu() && A.scalar_type() == at::kFloat && A.size(0) >= kFewestRows && is_host_product_faster();
}

// C ← factor·AB, or C ← C + factor·AB, by host_product.h.
void multiply_here(const Tensor& C, const Tensor& A, const Tensor& B, double factor = 1, bool adds = false) {
  const auto strided = [](const Tensor& X) {
    return Strided<float>{X.const_data_ptr<float>(), X.stride(0), X.stride(1)};
  };
  TORCH_INTERNAL_ASSERT(C.is_contiguous());
  multiply(HostProduct<float>{.A = strided(A),
                              .B = strided(B),
                              .C = C.mutable_data_ptr<float>(),
                              .m = A.size(0),
                              .n = B.size(1),
                              .k = A.size(1),
                              .factor = static_cast<float>(factor),
                              .adds = adds});
}

Tensor multiplied(const Tensor& A, const Tensor& B) {
  if (!is_for_host(A)) return at::mm(A, B);
  Tensor C = at::empty({A.size(0), B.size(1)}, A.options());
  multiply_here(C, A, B);
  return C;
}

}  // namespace

Tensor product(const Tensor& x, const Tensor& W) { return multiplied(x, W.t()); }

Tensor product(const Tensor& x, const Tensor& W, const Tensor& b) {
  if (!is_for_host(x)) return at::addmm(b, x, W.t());
  Tensor y = at::empty({x.size(0), W.size(0)}, x.options());
  y.copy_(b);
  multiply_here(y, x, W.t(), 1, /*adds=*/true);
  return y;
}

void product_out(Tensor& y, const Tensor& x, const Tensor& W) {
  if (is_for_host(x)) {
    multiply_here(y, x, W.t());
  } else if (x.scalar_type() == y.scalar_type()) {
    at::mm_out(y, x, W.t());
  } else {
    at::mm_out(y, x, W.t(), at::kFloat);
  }
}

Tensor input_gradient(const Tensor& dy, const Tensor& W) { return multiplied(dy, W); }

void input_gradient_out(Tensor& dx, const Tensor& dy, const Tensor& W, double alpha) {
  if (is_for_host(dy)) {
    multiply_here(dx, dy, W, alpha);
  } else {
    at::addmm_out(dx, dx, dy, W, /*beta=*/0, alpha);
  }
}

Tensor weight_gradient(const Tensor& dy, const Tensor& x) {
  return x.scalar_type() == at::kFloat ? multiplied(dy.t(), x) : at::mm(dy.t(), x, at::kFloat);
}

void weight_gradient_out(Tensor& dW, const Tensor& dy, const Tensor& x, double alpha, bool adds) {
  if (is_for_host(dy.t())) {
    multiply_here(dW, dy.t(), x, alpha, adds);
  } else if (x.scalar_type() == at::kFloat) {
    at::addmm_out(dW, dW, dy.t(), x, /*beta=*/adds ? 1 : 0, alpha);
  } else {
    at::addmm_out(dW, dW, dy.t(), x, at::kFloat, /*beta=*/adds ? 1 : 0, alpha);
  }
}

}  // namespace prism::model
