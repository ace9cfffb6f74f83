#include "prism/reproduce/measures.h"

#include <gtest/gtest.h>

#include "prism/model/config.h"
#include "tests/reproduce/helpers.h"

namespace prism::reproduce {
namespace {

using nlohmann::json;

json settings_of(const std::string& id, const std::vector<std::string>& settings = {}) {
  const auto cost = experiments("cost", settings)[0];
  for (const auto& planned : cost.plan.sweep()) {
    if (cost.plan.contenders()[planned.contender].id == id) return key_settings(planned.config);
  }
  return {};
}

TEST(HiddenMatrices, AreThoseOfTheModel) {
  for (const auto& name : model::preset_names()) {
    const auto hidden = hidden_matrices(settings_of("muon", {"model.preset=" + name}));
    int64_t elements = 0;
    for (const auto& [m, n] : hidden.shapes) elements += m * n;
    EXPECT_EQ(hidden.layers * elements, model::preset(name).matrix_parameters()) << name;
  }
}

// Of one 512×512 matrix Muon takes 4 + 2 times 512³ a step and the stack 8 + 2; of a wide one on the right, 128×512,
// both sides of the stack are 256 and 512.
TEST(LiteralFlop, OfTheStackIsTheSumOverTheMatrices) {
  const auto step = [](double l, double k) { return 4 * l * k * k + 2 * k * k * k; };
  const double muon = 8 * 5 * (2 * step(512, 512) + 2 * step(512, 128) + 2 * step(1408, 512) + step(1408, 512));
  const double right = 8 * 5 * (2 * step(1024, 512) + 2 * step(512, 256) + 2 * step(2816, 512) + step(1408, 1024));
  EXPECT_DOUBLE_EQ(*literal_flop(settings_of("muon", {"model.preset=22m"})), muon);
  EXPECT_DOUBLE_EQ(*literal_flop(settings_of("prism-stacked", {"model.preset=22m"})), right);
  EXPECT_FALSE(literal_flop(settings_of("adamw")).has_value());
}

}  // namespace
}  // namespace prism::reproduce
