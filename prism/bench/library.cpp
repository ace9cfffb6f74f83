#include "prism/bench/library.h"

#include <ATen/Context.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "prism/bench/timing.h"
#include "prism/linalg/product.h"
#include "prism/linalg/scratch.h"
#include "prism/optim/kernel_rule.h"
#include "prism/train/summary.h"

namespace prism::bench {
namespace {

using Kind = Kernel::Kind;

// A stack of equally shaped T (count, m, n), where n is the side of the Gram matrix, and what is multiplied with it.
struct Stack {
  Tensor T, Q;                   // (count, m, n) and (count, n, n), symmetric
  Tensor gram, product, update;  // results
  double mnn = 0, nnn = 0;
};

std::vector<Stack> make_stacks(const std::vector<Shape>& shapes, Side side, at::Device device) {
  std::map<Shape, int64_t> counts;
  for (const auto& shape : shapes) {
    const bool left = resolved_side(side, shape.at(0), shape.at(1)) == Side::Left;
    ++counts[{shape[left ? 1 : 0], shape[left ? 0 : 1]}];
  }
  at::manual_seed(0);
  const auto half = at::device(device).dtype(at::kHalf);
  std::vector<Stack> stacks;
  for (const auto& [shape, count] : counts) {
    const int64_t m = shape[0], n = shape[1];
    Stack stack{at::randn({count, m, n}, half), at::randn({count, n, n}, half), at::empty({count, n, n}, half),
                at::empty({count, n, n}, half), at::empty({count, m, n}, half)};
    stack.Q = stack.Q.add(stack.Q.mT()).mul_(0.5);
    stack.mnn = static_cast<double>(count * m) * static_cast<double>(n * n);
    stack.nnn = static_cast<double>(count * n) * static_cast<double>(n * n);
    stacks.push_back(std::move(stack));
  }
  return stacks;
}

// Returns the median milliseconds of a call in the last quarter of a second of `seconds`.
double hot_ms(at::Device device, double seconds, const std::function<void()>& call) {
  constexpr double kBatch = 250;  // ms
  const auto begin = std::chrono::steady_clock::now();
  double ms = train::median(time_calls(device, 3, call));
  do {
    ms = train::median(time_calls(device, std::max<int64_t>(3, static_cast<int64_t>(kBatch / ms)), call));
  } while (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < seconds);
  return ms;
}

}  // namespace

LibraryRates library_rates(const Options& options, const std::vector<Shape>& shapes, at::Device device,
                           double seconds) {
  const auto rule = options.kernel_rule();
  const auto* spectral = rule ? std::get_if<SpectralKernel>(rule.get()) : nullptr;
  if (spectral == nullptr) return {};
  auto stacks = make_stacks(shapes, spectral->side, device);
  double mnn = 0, nnn = 0;
  for (const auto& stack : stacks) {
    mnn += stack.mnn;
    nnn += stack.nnn;
  }
  const auto rate = [&](double flop, const std::function<void(Stack&)>& product) {
    return flop / hot_ms(device, seconds, [&] { std::ranges::for_each(stacks, product); }) * 1e3;
  };
  LibraryRates rates;
  rates[Kind::Gram] = rate(2 * mnn, [](Stack& s) { at::bmm_out(s.gram, s.T.mT(), s.T); });
  rates[Kind::Mean] = rates[Kind::Gram];
  rates[Kind::Iteration] = rate(2 * nnn, [](Stack& s) { at::bmm_out(s.product, s.Q, s.Q); });
  rates[Kind::Sequence] = rates[Kind::Iteration];
  rates[Kind::Update] = rate(2 * mnn, [](Stack& s) { at::bmm_out(s.update, s.T, s.Q); });
  return rates;
}

void add_library_rates(Roofline& roofline, const std::vector<Kernel>& kernels, const LibraryRates& rates) {
  for (auto& row : roofline.kernels) {
    const auto kernel = std::ranges::find(kernels, row.label, &Kernel::label);
    if (kernel == kernels.end()) continue;
    if (const auto rate = rates.find(kernel->kind); rate != rates.end()) row.library_flops = rate->second;
  }
}

HostRates host_rates(int64_t repeats) {
  constexpr int64_t kSide = 512, kCount = 16;
  const Tensor A = at::randn({kCount, kSide, kSide});
  const auto rate = [&](const std::function<void()>& multiply) {
    multiply();
    const double ms = train::median(time_calls(at::kCPU, repeats, multiply));
    return 2.0 * kCount * kSide * kSide * kSide / ms * 1e3;
  };
  const auto torch_rate = [&](const Tensor& X) {
    Tensor C = at::empty_like(X);
    return rate([&] { at::bmm_out(C, X, X); });
  };
  const ScratchScope scope;
  return {.ours = rate([&] { product(A, A); }), .float32 = torch_rate(A), .bfloat16 = torch_rate(A.to(at::kBFloat16))};
}

double library_ms(const Roofline& roofline) {
  double ms = roofline.total_ms;
  for (const auto& row : roofline.kernels) {
    if (row.library_flops) ms += 1e3 * row.work.flop / *row.library_flops - row.ms;
  }
  return ms;
}

}  // namespace prism::bench
