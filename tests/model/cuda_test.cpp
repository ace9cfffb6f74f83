#include <ATen/Context.h>

#include "prism/model/generate.h"
#include "prism/model/ops.h"
#include "tests/close.h"
#include "tests/model/helpers.h"

// Compares the model on the GPU with the model on the CPU. Skipped without a GPU.
namespace prism::model {
namespace {

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  }

  // By default sizes that the kernels support. A width of 64 or 61 tokens falls back to the plain operators.
  static ModelConfig config(bool tied = true, int64_t width = 128, int64_t vocab = 64) {
    ModelConfig c = tiny(tied);
    c.head_dim = 16;
    c.width = width;
    c.vocab = vocab;
    c.mlp = 96;
    c.context = 128;
    return c;
  }

  static Qwen2 on_gpu(const Qwen2& model, at::ScalarType type) {
    Qwen2 copy(model.config(), 0, at::kCUDA);
    const torch::NoGradGuard no_gradients;
    for (size_t i = 0; i < copy.named_parameters().size(); ++i) {
      copy.named_parameters()[i].second.copy_(model.named_parameters()[i].second);
    }
    EXPECT_EQ(copy.compute_dtype(), at::kBFloat16);
    copy.set_compute_dtype(type);
    return copy;
  }
};

double relative_error(const at::Tensor& actual, const at::Tensor& expected) {
  const at::Tensor exact = expected.to(at::kDouble);
  return ((actual.cpu().to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

TEST_F(Cuda, InFloat32LossLogitsAndGradientsAreTheCpus) {
  for (const bool tied : {true, false}) {
    const Qwen2 cpu = random_model(config(tied)), gpu = on_gpu(cpu, at::kFloat);
    const auto tokens = random_tokens(cpu.config(), 3, 65);
    EXPECT_CLOSE(gpu.loss(tokens.cuda()), cpu.loss(tokens), 1e-5);
    EXPECT_LT(relative_error(gpu.forward(tokens.cuda()), cpu.forward(tokens)), 1e-5);
    const auto expected = gradients(cpu, tokens), actual = gradients(gpu, tokens.cuda());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_LT(relative_error(actual[i], expected[i]), 5e-5) << cpu.named_parameters()[i].first;
    }
  }
}

void expect_near(const Qwen2& cpu, const Qwen2& gpu) {
  const auto tokens = random_tokens(cpu.config(), 8, 65);
  EXPECT_NEAR(gpu.loss(tokens.cuda()).item<double>(), cpu.loss(tokens).item<double>(), 0.02);
  EXPECT_EQ(gpu.forward(tokens.cuda()).scalar_type(), at::kFloat);
  EXPECT_LT(relative_error(gpu.forward(tokens.cuda()), cpu.forward(tokens)), 0.02);
  const auto expected = gradients(cpu, tokens), actual = gradients(gpu, tokens.cuda());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(actual[i].scalar_type(), at::kFloat);
    EXPECT_LT(relative_error(actual[i], expected[i]), 0.06) << cpu.named_parameters()[i].first;
  }
}

TEST_F(Cuda, InBfloat16TheyAreWithinItsPrecision) {
  for (const auto& shape : {config(), config(false), config(true, 64, 61)}) {
    SCOPED_TRACE(shape.width);
    const Qwen2 cpu = random_model(shape);
    expect_near(cpu, on_gpu(cpu, at::kBFloat16));
  }
}

TEST_F(Cuda, TheWeightsStartAsOnTheCpu) {
  const Qwen2 cpu(config(), 5), gpu(config(), 5, at::kCUDA);
  for (size_t i = 0; i < cpu.named_parameters().size(); ++i) {
    EXPECT_TRUE(gpu.named_parameters()[i].second.cpu().equal(cpu.named_parameters()[i].second));
  }
}

TEST_F(Cuda, RecomputationGivesTheSameBits) {
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  Qwen2 model = on_gpu(random_model(config()), at::kBFloat16);
  const auto tokens = random_tokens(config(), 4, 65).cuda();
  const auto kept = gradients(model, tokens);
  model.set_recompute(true);
  const auto recomputed = gradients(model, tokens);
  for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(kept[i].equal(recomputed[i])) << i;
  at::globalContext().setDeterministicAlgorithms(false, false);
}

TEST_F(Cuda, GreedyTextIsTheCpus) {
  const Qwen2 cpu = random_model(config(false)), gpu = on_gpu(cpu, at::kFloat);
  const std::vector<uint32_t> prompt = {3, 14, 15, 9};
  EXPECT_EQ(generate(gpu, prompt, {.tokens = 60, .temperature = 0}),
            generate(cpu, prompt, {.tokens = 60, .temperature = 0}));
}

TEST_F(Cuda, NotANumberComesThroughTheLoss) {
  const Qwen2 model = on_gpu(random_model(config()), at::kBFloat16);
  {
    const torch::NoGradGuard no_gradients;
    model.named_parameters()[1].second.fill_(std::nan(""));
  }
  EXPECT_TRUE(std::isnan(model.loss(random_tokens(config(), 2, 9).cuda()).item<double>()));
}

// Compares each kernel with the plain operators in float64 on the same numbers. Rounding to bfloat16 costs up to 2⁻⁸.
class CudaOps : public Cuda {
 protected:
  static constexpr double kRounding = 1.0 / 256;

  void SetUp() override {
    Cuda::SetUp();
    if (!IsSkipped() && !ops::cuda::usable(torch::zeros(1, torch::kCUDA), at::kFloat, true))
      GTEST_SKIP() << "no kernels";
    torch::manual_seed(1);
  }
  static at::Tensor low(at::IntArrayRef shape) { return torch::randn(shape).to(at::kBFloat16); }
  static at::Tensor exact(const at::Tensor& x) { return x.defined() ? x.to(at::kDouble) : x; }
  static at::Tensor gpu(const at::Tensor& x) { return x.defined() ? x.cuda() : x; }
};

TEST_F(CudaOps, RmsNormAndItsGradientAreThePlainOnes) {
  for (const int64_t width : {128, 384, 512, 2048}) {
    for (const int64_t rows : {1, 13, 9000}) {
      const auto x = torch::randn({rows, width}), g = torch::randn({width}), a = torch::randn({rows, width});
      const auto y = low({rows, width}), dn = low({rows, width});
      for (const bool both : {true, false}) {
        const auto added = both ? y : at::Tensor(), past = both ? a : at::Tensor();
        const auto [z, n, r] = ops::cuda::rms_norm(gpu(x), gpu(added), gpu(g), 1e-5);
        const auto expected = ops::plain::rms_norm(exact(x), exact(added), exact(g), 1e-5, at::kDouble);
        EXPECT_TRUE(z.cpu().equal(both ? x + y : x));
        EXPECT_LT(relative_error(n, expected.n), kRounding);
        EXPECT_LT(relative_error(r, expected.r), 1e-6);
        const auto [dz, dg, dz_low] = ops::cuda::rms_norm_backward(gpu(dn), z, r, gpu(g), gpu(past), both);
        const auto exact_gradient =
            ops::plain::rms_norm_backward(exact(dn), expected.z, expected.r, exact(g), exact(past), false);
        EXPECT_LT(relative_error(dz, exact_gradient.dz), 1e-6);
        EXPECT_LT(relative_error(dg, exact_gradient.dg), 1e-5);
        ASSERT_EQ(dz_low.defined(), both);
        EXPECT_TRUE(!both || dz_low.equal(dz.to(at::kBFloat16)));
      }
    }
  }
}

TEST_F(CudaOps, RopeIsThePlainOne) {
  const int64_t B = 3, T = 37, H = 6, K = 2, D = 24;
  const auto angle = torch::randn({T, D / 2}), cosine = angle.cos(), sine = angle.sin(),
             qkv = low({B, T, H + 2 * K, D});
  const auto turned = gpu(qkv).clone(), turned_exact = exact(qkv);
  ops::cuda::rope_(turned, K, gpu(cosine), gpu(sine));
  ops::plain::rope_(turned_exact, K, exact(cosine), exact(sine));
  EXPECT_LT(relative_error(turned, turned_exact), kRounding);
  EXPECT_TRUE(turned.narrow(2, H + K, K).equal(gpu(qkv).narrow(2, H + K, K)));
}

TEST_F(CudaOps, TheGradientOfRopeIsThePlainOne) {
  struct Shape {
    int64_t B, T, H, K, D;
  };
  // Few rows; many for each thread; columns for more than one block.
  for (const auto& [B, T, H, K, D] : {Shape{1, 1, 1, 1, 16}, Shape{5, 1700, 6, 2, 32}, Shape{3, 37, 40, 4, 128}}) {
    const auto angle = torch::randn({T, D / 2}), cosine = angle.cos(), sine = angle.sin(),
               d = low({B, T, H + 2 * K, D});
    const auto heads = [&](const at::Tensor& x, int64_t first, int64_t count) {
      return x.narrow(2, first, count).transpose(1, 2);
    };
    const auto [dqkv_exact, db_exact] = ops::plain::rope_backward(
        heads(exact(d), 0, H), heads(exact(d), H, K), heads(exact(d), H + K, K), exact(cosine), exact(sine));
    // dv in the strides of the forward pass, in head order, and with strides that are no multiple of eight.
    const auto dq = heads(gpu(d), 0, H), dk = heads(gpu(d), H, K).contiguous(), dv = heads(gpu(d), H + K, K);
    const auto odd = torch::zeros({B, K, T, D + 1}, dv.options()).narrow(3, 0, D).copy_(dv);
    for (const auto& any : {dv, dv.contiguous(), odd}) {
      const auto [dqkv, db] = ops::cuda::rope_backward(dq, dk, any, gpu(cosine), gpu(sine));
      EXPECT_LT(relative_error(dqkv, dqkv_exact), kRounding);
      EXPECT_LT(relative_error(db, db_exact), 1e-5);
      const auto again = ops::cuda::rope_backward(dq, dk, any, gpu(cosine), gpu(sine));
      EXPECT_TRUE(again.first.equal(dqkv) && again.second.equal(db));
    }
  }
}

TEST_F(CudaOps, SwigluAndItsGradientAreThePlainOnes) {
  for (const int64_t mlp : {8, 88, 1408, 4864}) {
    const auto ab = low({33, 2 * mlp}) * 3, ds = low({33, mlp});
    EXPECT_LT(relative_error(ops::cuda::swiglu(gpu(ab)), ops::plain::swiglu(exact(ab))), kRounding);
    const auto [dab, s] = ops::cuda::swiglu_backward(gpu(ds), gpu(ab));
    const auto [dab_exact, s_exact] = ops::plain::swiglu_backward(exact(ds), exact(ab));
    EXPECT_LT(relative_error(dab, dab_exact), kRounding);
    EXPECT_LT(relative_error(s, s_exact), kRounding);
  }
  const auto far = torch::tensor({{-1e30F, -200.0F, -88.0F, -60.0F, 0.0F, 60.0F, 200.0F, 1e30F}}).to(at::kBFloat16);
  const auto ones = torch::ones_like(far), s = ops::cuda::swiglu(gpu(torch::cat({far, ones}, 1)));
  EXPECT_LT(relative_error(s.clamp_max(1e3), torch::silu(exact(far)).clamp_max(1e3)), kRounding);
}

TEST_F(CudaOps, CrossEntropyAndItsGradientAreThePlainOnes) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t vocab : {8, 504, 16384, 24576, 24584, 151936}) {  // up to 24,576 a row stays in registers
      const auto z = (torch::randn({70, vocab}) * 4).to(type), targets = torch::randint(vocab, {70}, torch::kLong);
      const auto z_exact = exact(z), z_kept = gpu(z), dz = gpu(z), again = gpu(z);
      const auto expected = ops::plain::cross_entropy_(z_exact, targets, true);
      EXPECT_LT(relative_error(ops::cuda::cross_entropy_(z_kept, gpu(targets), false), expected), 1e-6);
      EXPECT_TRUE(z_kept.equal(gpu(z)));
      EXPECT_LT(relative_error(ops::cuda::cross_entropy_(dz, gpu(targets), true), expected), 1e-6);
      EXPECT_LT(relative_error(dz, z_exact), type == at::kFloat ? 1e-5 : kRounding);
      ops::cuda::cross_entropy_(again, gpu(targets), true);
      EXPECT_TRUE(again.equal(dz));
    }
  }
  auto far = torch::tensor({{1e4F, -1e4F, 0.0F, 3.0F, 0.0F, 0.0F, 0.0F, 0.0F}}, torch::kCUDA);
  EXPECT_NEAR(ops::cuda::cross_entropy_(far, torch::tensor({1}, torch::kLong).cuda(), false).item<double>(), 2e4, 1e-2);
}

TEST_F(CudaOps, WhatIsNotANumberOrNoTokenComesThrough) {
  const auto loss = [](const at::Tensor& z, int64_t target) {
    return ops::cuda::cross_entropy_(z, torch::tensor({target}, torch::kLong).cuda(), true).item<double>();
  };
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t vocab : {400, 50304}) {
      auto z = torch::randn({1, vocab}, torch::kCUDA).to(type);
      EXPECT_TRUE(std::isfinite(loss(z, vocab - 1)));
      EXPECT_TRUE(std::isnan(loss(z, vocab)));
      EXPECT_TRUE(std::isnan(loss(z, -1)));
      const auto kept = z.clone();
      z[0][77] = std::nan("");
      EXPECT_TRUE(std::isnan(loss(z, 3)));
      kept[0].narrow(0, 72, 8).fill_(std::nan(""));  // all logits of one thread
      EXPECT_TRUE(std::isnan(loss(kept, 3)));
    }
  }
}

TEST_F(CudaOps, AddedRowsAreThePlainOnes) {
  // With few tokens, the rows of one token fill several pieces.
  for (const int64_t vocab : {1, 3, 50, 20000}) {
    for (const int64_t rows : {1, 32, 33, 5000}) {
      for (const int64_t width : {4, 512, 2048}) {
        const auto ids = torch::randint(vocab, {rows}, torch::kLong), x = torch::randn({rows, width});
        const auto W = torch::randn({vocab, width});
        auto sum = gpu(W).clone(), again = gpu(W).clone();
        ops::cuda::add_rows_(sum, gpu(ids), gpu(x));
        ops::cuda::add_rows_(again, gpu(ids), gpu(x));
        EXPECT_LT(relative_error(sum, exact(W).index_add(0, ids, exact(x))), 1e-6)
            << vocab << " " << rows << " " << width;
        EXPECT_TRUE(again.equal(sum));
      }
    }
  }
}

TEST_F(CudaOps, ScaledTensorsAreThePlainOnes) {
  const auto factor = torch::tensor(1.0F / 3);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const auto x = torch::randn({37, 24}).to(type);
    EXPECT_TRUE(ops::cuda::scaled(gpu(x), gpu(factor)).cpu().equal((x.to(at::kFloat) * factor).to(type)));
  }
}

}  // namespace
}  // namespace prism::model
