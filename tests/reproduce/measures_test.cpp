#include "prism/reproduce/measures.h"

#include <gtest/gtest.h>

#include <cmath>

#include "prism/model/config.h"
#include "prism/reproduce/gain.h"
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

// For a 512×512 matrix a step of Muon's iteration takes (4 + 2)·512³ operations and one of the stack (8 + 2)·512³. For
// a wide matrix on the right side, 128×512, the stack is 256×512.
TEST(LiteralFlop, OfTheStackIsTheSumOverTheMatrices) {
  const auto step = [](double l, double k) { return 4 * l * k * k + 2 * k * k * k; };
  const double muon = 8 * 5 * (2 * step(512, 512) + 2 * step(512, 128) + 2 * step(1408, 512) + step(1408, 512));
  const double right = 8 * 5 * (2 * step(1024, 512) + 2 * step(512, 256) + 2 * step(2816, 512) + step(1408, 1024));
  EXPECT_DOUBLE_EQ(*literal_flop(settings_of("muon", {"model.preset=22m"})), muon);
  EXPECT_DOUBLE_EQ(*literal_flop(settings_of("prism-stacked", {"model.preset=22m"})), right);
  EXPECT_FALSE(literal_flop(settings_of("adamw")).has_value());
}

// Returns a line of spectra.jsonl whose gains are the law times Jordan's polynomial, plus `error`.
train::SpectraLine line(int64_t step, double error) {
  const Coefficients p("jordan");
  train::SpectraLine line;
  line.step = step;
  line.theory = {0.9, 0.5, 0.1};
  line.augmented = {4, 2, 1};
  for (size_t k = 0; k < 3; ++k) {
    line.gain.push_back(line.theory[k] * p(line.augmented[k] / std::sqrt(21.0)) + error);
    line.snr.push_back(static_cast<double>((k + 1) * step));
  }
  return line;
}

TEST(SpectraSummary, FitsTheLawTimesThePolynomial) {
  const auto settings = settings_of("prism-1");
  const auto exact = spectra_summary({line(10, 0), line(20, 0)}, settings);
  EXPECT_NEAR(exact.r2, 1, 1e-12);
  EXPECT_LT(exact.r2_theory, 0.999);
  EXPECT_EQ(exact.directions, 6);
  EXPECT_EQ(exact.steps, (std::vector<int64_t>{10, 20}));
  EXPECT_EQ(exact.snr[1], (std::vector<double>{22, 30, 40, 50, 58}));
  EXPECT_LT(spectra_summary({line(10, 0.2)}, settings).r2, 0.9);
  EXPECT_TRUE(spectra_summary({}, settings).empty());
}

TEST(SpectraSummary, TheSpreadOfTheSnrIsComparedOverTime) {
  StoredRun run;
  run.spectra.snr = {{0.5, 1, 2, 3, 4}, {0.5, 1, 2, 3, 8}};
  EXPECT_DOUBLE_EQ(*measure("snr_widening", "").of(run), 2);
  EXPECT_FALSE(measure("snr_widening", "").of(StoredRun{}).has_value());
}

}  // namespace
}  // namespace prism::reproduce
