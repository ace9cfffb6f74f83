#include "prism/model/ops.h"

#include <cmath>
#include <limits>

#include "tests/close.h"
#include "tests/model/helpers.h"

// Compares the CPU kernels with the plain operators in float64.
namespace prism::model::ops {
namespace {

using torch::kDouble;
using torch::kFloat;

struct Random {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
  Tensor operator()(at::IntArrayRef shape) { return torch::randn(shape, generator); }
};

Tensor exact(const Tensor& x) { return x.defined() ? x.to(kDouble) : x; }

class Widths : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Ops, Widths, testing::Values(1, 2, 7, 64, 129));

TEST_P(Widths, RmsNormAndItsGradientAreThePlainOnes) {
  Random random;
  for (const int64_t rows : {1, 3, 64, 200}) {
    const Tensor x = random({rows, GetParam()}), g = random({GetParam()}), dn = random({rows, GetParam()});
    for (const Tensor& other : {random({rows, GetParam()}), Tensor()}) {  // y forward, a backward
      const auto [z, n, r] = rms_norm(x, other, g, 1e-5, kFloat);
      const auto [z_exact, n_exact, r_exact] = plain::rms_norm(exact(x), exact(other), exact(g), 1e-5, kDouble);
      EXPECT_CLOSE(z, z_exact, 1e-7);
      EXPECT_CLOSE(n, n_exact, 1e-6);
      EXPECT_CLOSE(r, r_exact, 1e-6);
      const auto [dz, dg, low] = rms_norm_backward(dn, z, r, g, other, true);
      const auto [dz_exact, dg_exact, low_exact] =
          plain::rms_norm_backward(exact(dn), z_exact, r_exact, exact(g), exact(other), true);
      EXPECT_SAME(low, dz);
      EXPECT_CLOSE(dz, dz_exact, 4e-6);
      EXPECT_CLOSE(dg, dg_exact, 4e-6);
    }
  }
}

TEST_P(Widths, SwigluAndItsGradientAreThePlainOnes) {
  Random random;
  const Tensor ab = random({37, 2 * GetParam()}) * 4, ds = random({37, GetParam()});
  EXPECT_CLOSE(swiglu(ab), plain::swiglu(exact(ab)), 1e-6);
  const auto [dab, s] = swiglu_backward(ds, ab);
  const auto [dab_exact, s_exact] = plain::swiglu_backward(exact(ds), exact(ab));
  EXPECT_CLOSE(dab, dab_exact, 1e-6);
  EXPECT_CLOSE(s, s_exact, 1e-6);
}

TEST_P(Widths, CrossEntropyAndItsGradientAreThePlainOnes) {
  Random random;
  const Tensor z = random({50, GetParam()}) * 5,
               targets = torch::randint(GetParam(), {50}, random.generator, torch::kLong);
  Tensor z_loss = z.clone(), z_gradient = z.clone(), z_exact = exact(z);
  const Tensor expected = plain::cross_entropy_(z_exact, targets, true);
  EXPECT_CLOSE(cross_entropy_(z_loss, targets, false), expected, 1e-6);
  EXPECT_SAME(z_loss, z);
  EXPECT_CLOSE(cross_entropy_(z_gradient, targets, true), expected, 1e-6);
  EXPECT_CLOSE(z_gradient, z_exact, 1e-6);
}

TEST_P(Widths, RopeIsThePlainOneAndItsGradientTurnsBack) {
  Random random;
  const int64_t B = 2, T = 5, H = 4, K = 2, D = 2 * GetParam();
  const Tensor angle = random({T, D / 2}), cosine = angle.cos(), sine = angle.sin(), qkv = random({B, T, H + 2 * K, D});
  Tensor turned = qkv.clone(), turned_exact = exact(qkv);
  rope_(turned, K, cosine, sine);
  plain::rope_(turned_exact, K, exact(cosine), exact(sine));
  EXPECT_CLOSE(turned, turned_exact, 1e-6);
  const auto heads = [&](const Tensor& x, int64_t first, int64_t count) {
    return x.narrow(2, first, count).transpose(1, 2);
  };
  const auto back = [&](auto&& function, const Tensor& x, const Tensor& c, const Tensor& s) {
    return function(heads(x, 0, H), heads(x, H, K), heads(x, H + K, K), c, s);
  };
  const auto [dqkv, db] = back(rope_backward, turned, cosine, sine);
  const auto [dqkv_exact, db_exact] = back(plain::rope_backward, turned_exact, exact(cosine), exact(sine));
  EXPECT_CLOSE(dqkv, qkv.view({B * T, -1}), 2e-6);
  EXPECT_CLOSE(dqkv_exact, exact(qkv).view({B * T, -1}), 2e-6);
  EXPECT_CLOSE(db, exact(qkv).sum(at::IntArrayRef({0, 1})).view(-1), 4e-6);
  EXPECT_CLOSE(db_exact, exact(qkv).sum(at::IntArrayRef({0, 1})).view(-1), 4e-6);
}

TEST(Ops, AddingRowsCountsRepeatedIds) {
  Random random;
  const Tensor ids = torch::tensor({3, 0, 3, 3, 1}, torch::kLong), x = random({5, 9}), before = random({4, 9});
  Tensor W = before.clone(), plain_W = exact(before);
  add_rows_(W, ids, x);
  plain::add_rows_(plain_W, ids, exact(x));
  EXPECT_CLOSE(W, plain_W, 1e-6);
  EXPECT_CLOSE(W[3], before[3] + x[0] + x[2] + x[3], 1e-6);
  EXPECT_SAME(W[2], before[2]);
}

TEST(Ops, TheExponentialIsRightOverItsWholeRange) {  // seen through silu(a) · 1 = a / (1 + exp(−a))
  const Tensor a = torch::linspace(-80, 80, 100001).unsqueeze(1);
  const Tensor s = swiglu(torch::cat({a, torch::ones_like(a)}, 1)).to(kDouble);
  const Tensor expected = torch::silu(exact(a));
  EXPECT_LT(((s - expected) / expected.abs().clamp_min(1e-37)).abs().max().item<double>(), 5e-7);
}

TEST(Ops, PlainCrossEntropyOfBfloat16IsThatOfItsNumbers) {
  Random random;
  const Tensor z = (random({20, 33}) * 5).to(torch::kBFloat16), targets = torch::randint(33, {20}, torch::kLong);
  Tensor rounded = z.clone(), z_exact = exact(z);
  const Tensor expected = plain::cross_entropy_(z_exact, targets, true);
  EXPECT_CLOSE(plain::cross_entropy_(rounded, targets, true), expected, 1e-6);
  EXPECT_CLOSE(rounded, z_exact, 1.0 / 256);
}

TEST(Ops, FarApartLogitsNeitherOverflowNorLoseTheLoss) {
  Tensor z = torch::tensor({{1e4F, -1e4F, 0.0F}, {-3e38F, 0.0F, 3e38F}});
  const Tensor loss = cross_entropy_(z, torch::tensor({1, 2}, torch::kLong), true);
  EXPECT_CLOSE(loss, torch::tensor({2e4F, 0.0F}), 1e-7);
  EXPECT_CLOSE(z, torch::tensor({{1.0F, -1.0F, 0.0F}, {0.0F, 0.0F, 0.0F}}), 1e-7);
}

TEST(Ops, WhatIsNotANumberComesThrough) {  // or the guard of the training loop would see nothing
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, inf}) {
    for (const int64_t place : {0, 5, 33}) {
      Tensor z = torch::randn({1, 40});
      z[0][place] = bad;
      EXPECT_TRUE(std::isnan(cross_entropy_(z, torch::tensor({2}, torch::kLong), true).item<float>()));
      EXPECT_TRUE(z.isnan().all().item<bool>());
    }
  }
  EXPECT_TRUE(swiglu(torch::full({1, 2}, nan)).isnan().all().item<bool>());
  EXPECT_TRUE(rms_norm(torch::full({1, 3}, nan), Tensor(), torch::ones(3), 1e-6, kFloat).n.isnan().all().item<bool>());
}

}  // namespace
}  // namespace prism::model::ops
