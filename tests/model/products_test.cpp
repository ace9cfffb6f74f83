#include "prism/model/products.h"

#include "tests/close.h"

// Compares the products on the CPU with those of torch in float64.
namespace prism::model {
namespace {

using at::Tensor;
using torch::kDouble;

constexpr double kTolerance = 2e-6;

// Tokens: too few for our own products, as in generation, and enough. 300 × 520 and 70 are no multiples of any tile.
class Rows : public testing::TestWithParam<int64_t> {
 protected:
  static Tensor random(at::IntArrayRef shape, uint64_t seed) {
    return torch::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed));
  }
  const int64_t rows = GetParam();
  const Tensor x = random({rows, 300}, 1), W = random({520, 300}, 2), b = random({520}, 3), dy = random({rows, 520}, 4);
  const Tensor x_exact = x.to(kDouble), W_exact = W.to(kDouble), dy_exact = dy.to(kDouble);
};
INSTANTIATE_TEST_SUITE_P(Products, Rows, testing::Values(1, 31, 32, 70, 600));

TEST_P(Rows, ProductsAreThoseOfTorch) {
  const Tensor y = x_exact.mm(W_exact.t());
  EXPECT_CLOSE(product(x, W), y, kTolerance);
  EXPECT_CLOSE(product(x, W, b), y + b, kTolerance);
  Tensor out = torch::full({rows, 520}, NAN);
  product_out(out, x, W);
  EXPECT_CLOSE(out, y, kTolerance);
}

TEST_P(Rows, GradientsAreThoseOfTorch) {
  const Tensor dx = dy_exact.mm(W_exact), dW = dy_exact.t().mm(x_exact);
  EXPECT_CLOSE(input_gradient(dy, W), dx, kTolerance);
  EXPECT_CLOSE(weight_gradient(dy, x), dW, kTolerance);
  Tensor dx_out = torch::full({rows, 300}, NAN), dW_out = torch::full({520, 300}, NAN);
  input_gradient_out(dx_out, dy, W, 0.25);
  EXPECT_CLOSE(dx_out, 0.25 * dx, kTolerance);
  weight_gradient_out(dW_out, dy, x, 0.25, /*adds=*/false);
  EXPECT_CLOSE(dW_out, 0.25 * dW, kTolerance);
  weight_gradient_out(dW_out, dy, x, 0.5, /*adds=*/true);
  EXPECT_CLOSE(dW_out, 0.75 * dW, kTolerance);
}

TEST_P(Rows, OperandsMayBeBfloat16) {
  const Tensor narrow_x = x.to(torch::kBFloat16), narrow_W = W.to(torch::kBFloat16);
  EXPECT_SAME(product(narrow_x, narrow_W), narrow_x.mm(narrow_W.t()));
}

}  // namespace
}  // namespace prism::model
