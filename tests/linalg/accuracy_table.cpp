// Prints the tables of docs/accuracy.md as Markdown.

#include <cmath>
#include <cstdio>

#include "prism/linalg/sketch.h"
#include "tests/linalg/accuracy.h"

namespace prism::test {
namespace {

constexpr int64_t kRows = 192;
constexpr int64_t kColumns = 128;

void print_error(double error) {
  if (std::isfinite(error)) {
    std::printf(" %.1e |", error);
  } else {
    std::printf(" diverged |");
  }
}

void print_set(const char* set) {
  std::printf(
      "\n### %s, %ld × %ld\n\n"
      "| spectrum of T | γ | stacked bf16 | stacked float32 | Gram float32 | Gram split | Gram fp16 | Gram bf16 |\n"
      "|---|---|---|---|---|---|---|---|\n",
      set, kRows, kColumns);
  for (const auto& [name, T] : hard_matrices(kRows, kColumns)) {
    const Tensor D = noise_for(T);
    for (const double gamma : {0.0, 0.1, 1.0, 10.0, 100.0}) {
      const Errors e = errors_of(T, D, gamma, set);
      std::printf("| %s | %g |", name.c_str(), gamma);
      for (const double error :
           {e.stacked_bf16, e.stacked_float, e.gram_float, e.gram_split, e.gram_half, e.gram_bf16}) {
        print_error(error);
      }
      std::printf("\n");
    }
  }
}

// Jordan, γ = 0: what each product gains from splitting its left operand.
void print_ablation() {
  const size_t all = 5;
  const std::vector<std::pair<const char*, SplitSteps>> variants = {
      {"none", {}},
      {"RZ in step 1", {.RZ = 1}},
      {"RZ, (RZ)ᵀZ in step 1", {.RZ = 1, .ZRZ = 1}},
      {"**RZ, (RZ)ᵀZ in steps 1–2** (as prism/cuda does)", {.RZ = 2, .ZRZ = 2}},
      {"RZ, (RZ)ᵀZ in all steps", {.RZ = all, .ZRZ = all}},
      {"all four in steps 1–2", {.R2 = 2, .QZ = 2, .RZ = 2, .ZRZ = 2}},
      {"R², RZ, (RZ)ᵀZ in all steps", {.R2 = all, .RZ = all, .ZRZ = all}},
      {"QZ in all steps, RZ, (RZ)ᵀZ in steps 1–2", {.QZ = all, .RZ = 2, .ZRZ = 2}},
      {"all four in all steps", {.R2 = all, .QZ = all, .RZ = all, .ZRZ = all}},
  };
  const auto matrices = hard_matrices(kRows, kColumns);
  std::printf("\n### Which products to split: Jordan, γ = 0, %ld × %ld\n\n| split |", kRows, kColumns);
  for (const auto& [name, T] : matrices) std::printf(" %s |", name.c_str());
  std::printf("\n|---|---|---|---|---|---|---|\n");
  for (const auto& [variant, steps] : variants) {
    std::printf("| %s |", variant);
    for (const auto& [name, T] : matrices) {
      const Tensor expected = polar(T, {.solver = Solver::Stacked, .coefficients = "jordan"});
      const Tensor X = (T / T.abs().max()).to(at::kFloat);
      print_error(relative_error(emulated_gram(X, at::zeros_like(X), "jordan", at::kHalf, steps), expected));
    }
    std::printf("\n");
  }
}

// One step of the sketch as a dense matrix: the top r eigenpairs, shrunk by λ_{r+1} or not, and the lost trace as the
// tail.
Tensor cut(const Tensor& C, int64_t r, bool shrink) {
  const auto [ascending, vectors] = at::linalg_eigh(C);
  const int64_t n = C.size(0);
  Tensor lambda = ascending.flip(0).clone();
  const Tensor shift = shrink ? lambda[r].clone() : at::zeros({}, at::kDouble);
  const Tensor tail = (lambda.narrow(0, r, n - r).sum() + shift * r) / (n - r);
  lambda.narrow(0, 0, r).sub_(shift);
  lambda.narrow(0, r, n - r).copy_(tail.expand({n - r}));
  const Tensor V = vectors.flip(1);
  return (V * lambda).matmul(V.mT());
}

double least_ratio(const Tensor& sketch, const Tensor& average) {  // min vᵀ(sketch)v / vᵀ(average)v
  const Tensor P = symmetric_power(average, -0.5);
  return at::linalg_eigvalsh(P.matmul(sketch).matmul(P)).min().item<double>();
}

void print_sketch() {
  constexpr int64_t n = 48;
  std::printf(
      "\n### Sketch after 400 steps, β₂ 0.99, n = %ld\n\n"
      "| noise σ_i | rank | error, not shrunk | least damping | error, shrunk by λ_{r+1} | least damping |\n"
      "|---|---|---|---|---|---|\n",
      n);
  for (const double decay : {-0.5, -1.0, -2.0}) {
    const Tensor W = orthogonal(n, 1) * at::arange(1, n + 1, at::kDouble).pow(decay).unsqueeze(1);
    for (const int64_t r : {4, 12, 24}) {
      Tensor average = at::zeros({n, n}, at::kDouble);
      Tensor shrunk = average;
      Sketch sketch{at::zeros({r, n}, at::kDouble), at::zeros({1, 1}, at::kDouble)};
      for (uint64_t t = 0; t < 400; ++t) {
        const Tensor D = random({64, n}, t).matmul(W);
        const Tensor C = D.mT().matmul(D);
        average = 0.99 * average + 0.01 * C;
        shrunk = cut(0.99 * shrunk + 0.01 * C, r, /*shrink=*/true);
        sketch_update(sketch, D, 0.99);
      }
      const Covariance found = sketch_covariance(sketch);
      const Tensor kept = found.C * found.scale.square();
      std::printf("| i^%g | %ld | %.3f | %.3f | %.3f | %.3f |\n", decay, r, relative_error(kept, average),
                  least_ratio(kept, average), relative_error(shrunk, average), least_ratio(shrunk, average));
    }
  }
}

}  // namespace
}  // namespace prism::test

int main() {
  for (const char* set : {"jordan", "minimax9", "polar_express"}) prism::test::print_set(set);
  prism::test::print_ablation();
  prism::test::print_sketch();
}
