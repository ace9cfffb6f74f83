#include "prism/model/config.h"

#include <cmath>
#include <map>

#include "prism/model/parameters.h"
#include "tests/model/helpers.h"

namespace prism::model {
namespace {

TEST(ModelConfig, CountsOfThePresetsAreThoseOfTheFormula) {
  // layers · (2 · width · queries + 2 · width · keys + 3 · width · mlp), with 64 (demo: 32) numbers a head
  const std::map<std::string, int64_t> matrices = {
      {"demo", 4 * (2 * 128 * 128 + 2 * 128 * 64 + 3 * 128 * 352)},
      {"22m", 8 * (2 * 512 * 512 + 2 * 512 * 128 + 3 * 512 * 1408)},
      {"124m", 12 * (2 * 768 * 768 + 2 * 768 * 256 + 3 * 768 * 2048)},
      {"1b", 24LL * (2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048 * 5632)},
  };
  for (const auto& name : preset_names()) {
    ModelConfig config = preset(name);
    config.vocab = 16384;
    config.check();
    EXPECT_TRUE(config.tied);
    EXPECT_EQ(config.head_dim, config.width / config.heads);
    EXPECT_EQ(config.matrix_parameters(), matrices.at(name)) << name;
    const int64_t keys = config.kv_heads * config.head_dim;
    const int64_t vectors = config.layers * (2 * config.width + config.width + 2 * keys) + config.width;
    EXPECT_EQ(config.parameters(), matrices.at(name) + vectors + 16384 * config.width) << name;
    config.tied = false;
    EXPECT_EQ(config.parameters(), matrices.at(name) + vectors + int64_t{2} * 16384 * config.width) << name;
  }
  EXPECT_EQ(preset("22m").matrix_parameters(), 22544384);
  EXPECT_EQ(preset("1b").matrix_parameters(), 1082130432);
}

TEST(ModelConfig, AnUnknownPresetIsAnErrorWithTheKnownOnes) {
  EXPECT_EQ(refusal([] { preset("7b"); }), "model: unknown preset '7b', expected one of: demo, 22m, 124m, 1b");
}

TEST(ModelConfig, SaysWhichNumberDoesNotFit) {
  const auto message = [](auto change) {
    ModelConfig config = tiny();
    change(config);
    return refusal([&] { config.check(); });
  };
  EXPECT_EQ(message([](auto& c) { c.kv_heads = 3; }), "model: heads (4) must be a multiple of kv_heads (3)");
  EXPECT_EQ(message([](auto& c) { c.head_dim = 7; }), "model: head_dim must be even, got 7");
  EXPECT_EQ(message([](auto& c) { c.vocab = 0; }), "model: vocab must be between 1 and 1048576, got 0");
  EXPECT_EQ(message([](auto& c) { c.layers = -1; }), "model: layers must be between 1 and 1048576, got -1");
  EXPECT_EQ(message([](auto& c) { c.rope_theta = 0; }), "model: rope_theta must be positive, got 0");
  EXPECT_EQ(message([](auto& c) { c.rms_eps = -1; }), "model: rms_eps must be positive, got -1");
  EXPECT_EQ(message([](auto&) {}), "nothing was thrown");
}

TEST(InitialWeights, AreAFunctionOfSeedNameAndPlaceAlone) {
  const ModelConfig config = tiny();
  const ParameterShape shape = {"model.layers.0.mlp.up_proj.weight", {52, 40}};
  const at::Tensor value = initial_value(shape, config, 5);
  const int threads = at::get_num_threads();
  at::set_num_threads(threads == 1 ? 2 : 1);
  EXPECT_TRUE(value.equal(initial_value(shape, config, 5)));
  at::set_num_threads(threads);
  EXPECT_FALSE(value.equal(initial_value(shape, config, 6)));
  EXPECT_FALSE(value.equal(initial_value({"model.layers.1.mlp.up_proj.weight", {52, 40}}, config, 5)));
  // A longer tensor begins with the same numbers, also one of odd length.
  const at::Tensor longer = initial_value({shape.name, {int64_t{52} * 40 + 3}}, config, 5);
  EXPECT_TRUE(longer.narrow(0, 0, value.numel()).equal(value.flatten()));
  // Recorded values: a run must start from the same weights with every version of torch.
  EXPECT_NEAR(value.flatten()[0].item<float>(), 0.0320996754F, 1e-9);
  EXPECT_NEAR(value.flatten()[1].item<float>(), 0.0381781906F, 1e-9);
}

TEST(InitialWeights, AreNormalWithTheDeviationsOfTheHeader) {
  const ModelConfig config = {.layers = 8};
  const auto z = [&](Initial initial, InitScale scale, double deviation) {
    return initial_value({"x", {1000000}, initial}, config, 3, scale).to(torch::kDouble) / deviation;
  };
  for (const at::Tensor& x :
       {z(Initial::Normal, InitScale::Qwen2, 0.02), z(Initial::Residual, InitScale::Qwen2, 0.02),
        z(Initial::Normal, InitScale::Depth, 0.02), z(Initial::Residual, InitScale::Depth, 0.02 / 4)}) {
    EXPECT_NEAR(x.mean().item<double>(), 0, 0.004);
    EXPECT_NEAR(x.square().mean().item<double>(), 1, 0.006);
    EXPECT_NEAR(x.pow(4).mean().item<double>(), 3, 0.05);
    EXPECT_NEAR((x < 1).to(torch::kDouble).mean().item<double>(), 0.841345, 0.002);
    EXPECT_NEAR((x.slice(0, 0, 999999) * x.slice(0, 1)).mean().item<double>(), 0, 0.004);
  }
  EXPECT_TRUE(initial_value({"x", {3}, Initial::One}, config, 3).equal(torch::ones(3)));
  EXPECT_TRUE(initial_value({"x", {3}, Initial::Zero}, config, 3).equal(torch::zeros(3)));
}

TEST(InitialWeights, AreQwen2sUnlessTheDepthIsAskedFor) {
  const ModelConfig config = tiny();
  const auto deviations = [&](const Qwen2& model) {
    std::map<std::string, double> list;
    for (const auto& [name, weight] : model.named_parameters()) {
      if (weight.dim() == 2) list[name] = weight.detach().to(torch::kDouble).square().mean().sqrt().item<double>();
    }
    return list;
  };
  const double shrunk = 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers));
  const auto depth = deviations(Qwen2(config, 1, at::kCPU, InitScale::Depth));
  for (const auto& [name, deviation] : deviations(Qwen2(config, 1))) {
    const bool output = name.find("o_proj") != std::string::npos || name.find("down_proj") != std::string::npos;
    EXPECT_NEAR(deviation, 0.02, 0.002) << name;
    EXPECT_NEAR(depth.at(name), output ? shrunk : 0.02, 0.002) << name;
  }
}

}  // namespace
}  // namespace prism::model
