#include "prism/bench/work.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "prism/cuda/iteration.h"
#include "prism/optim/kernel_rule.h"

namespace prism::bench {
namespace {

using cuda::IterationProduct;
using Kind = Kernel::Kind;

constexpr double kHalfBytes = 2;

// Sums over all matrices m×n, where n is the side of the Gram matrix.
struct Sizes {
  double mn = 0, nn = 0, mnn = 0;
  std::map<int64_t, double> nnn = {};  // of each n
};

Sizes sizes_of(const std::vector<Shape>& shapes, Side side) {
  Sizes sum;
  for (const auto& shape : shapes) {
    const bool left = resolved_side(side, shape.at(0), shape.at(1)) == Side::Left;
    const auto m = static_cast<double>(shape[left ? 1 : 0]);
    const auto n = static_cast<double>(shape[left ? 0 : 1]);
    sum.mn += m * n;
    sum.nn += n * n;
    sum.mnn += m * n * n;
    sum.nnn[shape[left ? 0 : 1]] += n * n * n;
  }
  return sum;
}

// Returns true if a low half is multiplied, too.
bool is_split(const IterationProduct& product, int64_t side) {
  return !product.adds_low(side) && (product.X_low != cuda::kNone || product.Y_low != cuda::kNone);
}

Work product_work(const IterationProduct& product, const Sizes& sizes) {
  std::set<int> operands{product.X, product.Y, product.X_low, product.Y_low, product.C1, cuda::kNone};
  const auto results = 1 + (product.low != cuda::kNone ? 1 : 0);
  const auto matrices = static_cast<double>(operands.size()) - 1 + results;
  double nnn = 0;
  for (const auto& [n, sum] : sizes.nnn) nnn += (is_split(product, n) ? 2.0 : 1.0) * sum;
  return {(product.symmetric ? 1.0 : 2.0) * nnn, matrices * kHalfBytes * sizes.nn};
}

// Returns the formula of a product of the iteration, recognized by the buffers that it reads and writes.
std::string product_name(const IterationProduct& product) {
  if (product.high == cuda::kA) return "R = VZ";
  if (product.high == cuda::kS) return product.X == cuda::kA ? "S = A² + pA + q" : "V = ZR";
  if (product.X == cuda::kA) return "Z = c₂A² + c₁A + c₀";
  return product.X == cuda::kS ? "Z = c₄S² + …" : "Q = QZ";
}

std::vector<Kernel> iteration_kernels(const cuda::SpectralRule& rule, const Sizes& sizes) {
  std::vector<Kernel> kernels;
  int step = 0;
  for (const auto& product : cuda::plan_iteration(rule.steps, rule.bound).products) {
    if (product.X == cuda::kA && product.Y == cuda::kA) ++step;
    const bool halves = std::ranges::any_of(sizes.nnn, [&](const auto& size) { return is_split(product, size.first); });
    kernels.push_back({fmt::format("{}, step {}{}", product_name(product), step, halves ? ", halves" : ""),
                       Kind::Iteration, product_work(product, sizes)});
  }
  return kernels;
}

std::vector<Kernel> kernels_of(const SpectralKernel& kernel, const std::vector<Shape>& shapes) {
  const cuda::SpectralRule& rule = kernel.rule;
  const Sizes sizes = sizes_of(shapes, kernel.side);
  const bool stacked = rule.noisy && !rule.averaged;  // DᵀD is formed together with TᵀT
  const double operands = rule.noisy ? 2 : 1;         // T and D
  const double gram_terms = stacked ? 2 : 1;
  const double halves = rule.steps.front().split ? 2 : 1;
  std::vector<Kernel> kernels = {
      {"sample", Kind::Elementwise, {}},
      {"advance", Kind::Elementwise, {0, (3 * kFloatBytes + operands * kHalfBytes) * sizes.mn}},
      {"factor", Kind::Elementwise, {}},
      {"rewrite", Kind::Elementwise, {}},
  };
  if (rule.averaged)
    kernels.push_back(
        {"C ← βC + (1−β)DᵀD", Kind::Mean, {sizes.mnn, kHalfBytes * sizes.mn + 2 * kFloatBytes * sizes.nn}});
  const double gram_results = halves * kHalfBytes + (rule.averaged ? kFloatBytes : 0);
  kernels.push_back(
      {"Gram", Kind::Gram, {gram_terms * sizes.mnn, gram_terms * kHalfBytes * sizes.mn + gram_results * sizes.nn}});
  if (rule.by_norm) {
    kernels.push_back({"squares", Kind::Elementwise, {0, kHalfBytes * sizes.nn / 2}});
    kernels.push_back({"rescale", Kind::Elementwise, {}});
  }
  for (auto& product : iteration_kernels(rule, sizes)) kernels.push_back(std::move(product));
  kernels.push_back({"W ← … − lr·TQ",
                     Kind::Update,
                     {2 * sizes.mnn, (2 * kFloatBytes + kHalfBytes) * sizes.mn + kHalfBytes * sizes.nn}});
  return kernels;
}

// The work of a step on matrices that all have the same kernels.
Work work_of(const SpectralKernel& kernel, const std::vector<Shape>& shapes) {
  const Sizes sizes = sizes_of(shapes, kernel.side);
  Work work{0, 5 * kFloatBytes * sizes.mn};
  for (const auto& part : kernels_of(kernel, shapes)) {
    if (part.kind != Kind::Mean) {
      work.flop += part.work.flop;
      continue;
    }
    const double refreshes = 1.0 / static_cast<double>(kernel.rule.covariance_every);  // in a step, on average
    work.flop += refreshes * part.work.flop;
    work.bytes += (1 + refreshes) * kFloatBytes * sizes.nn;
  }
  return work;
}

// The work of whitened matrices: the covariance and its root on the right side, X = T Ĉ^(−1/2), and a step without noise
// on the left side.
Work whitened_work(const SpectralKernel& kernel, const std::vector<Shape>& shapes) {
  SpectralKernel left = kernel;
  left.side = Side::Left;
  left.rule.noisy = left.rule.averaged = false;
  Work work = work_of(left, shapes);
  const Sizes right = sizes_of(shapes, Side::Right);
  const double refreshes = 1.0 / static_cast<double>(kernel.rule.covariance_every),
               roots = 1.0 / static_cast<double>(kernel.rule.root_every);
  work.flop += (refreshes + 2) * right.mnn;  // DᵀD and X
  for (const auto& product : iteration_kernels(kernel.rule, right)) work.flop += roots * product.work.flop;
  work.bytes += (1 + refreshes + 1 + roots) * kFloatBytes * right.nn;  // Ĉ and its root are read, and written if due
  return work;
}

}  // namespace

std::optional<Peak> peak_of(const std::string& device_name) {
  if (device_name.find("H200") != std::string::npos) return Peak{790e12, 4.3e12};
  return std::nullopt;
}

std::optional<std::vector<Kernel>> step_kernels(const Options& options, const std::vector<Shape>& shapes) {
  const auto description = options.kernel_rule();
  const auto* spectral = description ? std::get_if<SpectralKernel>(description.get()) : nullptr;
  if (spectral == nullptr || spectral->side == Side::Whitened) return std::nullopt;
  return kernels_of(*spectral, shapes);
}

std::optional<Work> step_work(const Options& options, const std::vector<Shape>& shapes) {
  const auto description = options.kernel_rule();
  const auto* elementwise = description ? std::get_if<ElementwiseKernel>(description.get()) : nullptr;
  if (elementwise != nullptr && elementwise->rule.kind == cuda::Elementwise::Adam) {
    double elements = 0;
    for (const auto& shape : shapes) elements += std::accumulate(shape.begin(), shape.end(), 1.0, std::multiplies<>());
    return Work{0, 7 * kFloatBytes * elements};
  }
  const auto* spectral = description ? std::get_if<SpectralKernel>(description.get()) : nullptr;
  if (spectral == nullptr) return std::nullopt;
  std::vector<Shape> whitened, others;
  for (const auto& shape : shapes) {
    const bool is_whitened = resolved_side(spectral->side, shape.at(0), shape.at(1)) == Side::Whitened;
    (is_whitened ? whitened : others).push_back(shape);
  }
  const Work a = work_of(*spectral, others), b = whitened_work(*spectral, whitened);
  return Work{a.flop + b.flop, a.bytes + b.bytes};
}

}  // namespace prism::bench
