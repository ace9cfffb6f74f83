// Judges low precision by ratio: the error of each form against the same polynomial in float64, divided by the error of
// the literal bfloat16 iteration with Jordan's polynomial, which Muon runs. docs/accuracy.md has the figures.

#include "tests/linalg/accuracy.h"

#include "tests/close.h"

namespace prism {
namespace {

void expect_ratios(const Coefficients& set, double full, double split) {
  for (const auto& [name, T] : test::hard_matrices(96, 64)) {
    const Tensor D = test::noise_for(T);
    for (const double gamma : {0.0, 0.1, 1.0, 10.0, 100.0}) {
      const double literal = test::errors_of(T, D, gamma, "jordan").stacked_bf16;
      const auto errors = test::errors_of(T, D, gamma, set);
      EXPECT_LE(errors.gram_float, full * literal) << name << ", γ " << gamma;
      EXPECT_LE(errors.gram_split, split * literal) << name << ", γ " << gamma;
    }
  }
}

TEST(Accuracy, OfTheGramFormWithJordansPolynomialBeatsTheLiteralIterationInBfloat16) {
  expect_ratios("jordan", 0.01, 0.25);
}

TEST(Accuracy, OfTheGramFormWithMinimaxPolynomialsBeatsTheLiteralIterationInBfloat16) {
  expect_ratios("minimax9", 0.01, 0.5);
}

TEST(Accuracy, OfTheGramFormBeatsTheSameSetsLiteralIterationInBfloat16) {
  for (const auto& set : Coefficients::names()) {
    for (const auto& [name, T] : test::hard_matrices(96, 64)) {
      const Tensor D = test::noise_for(T);
      for (const double gamma : {0.0, 0.1, 1.0}) {
        const auto errors = test::errors_of(T, D, gamma, set);
        EXPECT_LE(errors.gram_float, 0.2 * errors.stacked_bf16) << set << ", " << name << ", γ " << gamma;
        EXPECT_LE(errors.gram_split, errors.stacked_bf16) << set << ", " << name << ", γ " << gamma;
      }
    }
  }
}

TEST(Accuracy, OfTheGramFormIsThatOfFloat32WhereTheSpectrumIsTame) {
  const Tensor T = test::random({96, 64}, 1);
  const auto errors = test::errors_of(T, test::noise_for(T), 1, "jordan");
  EXPECT_LE(errors.gram_float, 2 * errors.stacked_float);
  EXPECT_LE(errors.gram_float, 1e-5);
}

}  // namespace
}  // namespace prism
