#include "prism/cuda/whitening.h"

#include <algorithm>

namespace prism::cuda {
namespace {

constexpr int64_t kGroupBytes = int64_t{1} << 30;

int row_blocks(int64_t rows) { return static_cast<int>((rows + kRowsOfWhitening - 1) / kRowsOfWhitening); }

// Places the scratch arrays of a launch from `memory` on, and returns their size. Without memory it only computes that.
int64_t place_arrays(WhiteningLaunch& launch, char* memory) {
  int64_t bytes = 0;
  const auto take = [&]<class T>(T*& array, int64_t count) {
    array = memory == nullptr ? nullptr : reinterpret_cast<T*>(memory + bytes);
    bytes += (count * static_cast<int64_t>(sizeof(T)) + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  };
  take(launch.squares, launch.blocks);
  take(launch.traces, launch.blocks);
  take(launch.X_squares, launch.X_blocks);
  take(launch.X_powers, launch.count);
  for (float** array : {&launch.start, &launch.scales, &launch.powers, &launch.alphas}) take(*array, launch.count);
  take(launch.norms, launch.count);
  take(launch.due, 1);
  return bytes;
}

}  // namespace

Whitening::Whitening(const SpectralRule& rule, const Chunk& chunk, int processors)
    : rule_(rule), by_norm_(rule.by_norm), chunk_(chunk) {
  rule_.noisy = rule_.normalizes_rows = rule_.fixed_norm = false;  // layouts then hold only what the iteration needs
  rule_.by_norm = false;                                           // A is divided by its norm before the iteration
  int first = 0;
  for (size_t s = 0; s < chunk.size(); ++s) {
    const auto& [stack, begin, count] = chunk[s];
    if (stack->whitened) {
      wide_.push_back({s, first});
      MatrixStack root{.m = stack->n, .n = stack->n};
      root.G.resize(count, nullptr);
      roots_.push_back(std::move(root));
    }
    first += static_cast<int>(count);
  }
  if (wide_.empty()) return;
  std::vector<const MatrixStack*> roots;
  for (const auto& root : roots_) roots.push_back(&root);
  groups_ = make_chunks(roots, processors, kGroupBytes);
  for (const auto& group : groups_) {
    WhiteningLaunch sizes;
    for (const auto& [root, begin, count] : group) {
      const auto matrices = static_cast<int>(count);
      sizes.count += matrices;
      sizes.blocks += matrices * row_blocks(root->n);
      sizes.X_blocks += matrices * row_blocks(chunk[wide_[root - roots_.data()].segment].stack->m);
    }
    bytes_ = std::max(bytes_, Layout(group, rule_, nullptr).bytes + place_arrays(sizes, nullptr));
  }
}

WhiteningLaunch Whitening::launch_of(const Chunk& group, const Layout& roots, const SignalLaunch& signal,
                                     const Layout& layout, const Iteration& iteration) const {
  WhiteningLaunch launch{.covariance_beta = signal.settings.covariance_beta,
                         .covariance_every = signal.settings.covariance_every,
                         .root_every = static_cast<double>(rule_.root_every),
                         .bound = rule_.bound,
                         .by_norm = by_norm_,
                         .A_scale = iteration.A_scale,
                         .Q_scale = iteration.Q_scale,
                         .gamma = signal.settings.gamma,
                         .apply = signal.settings.apply,
                         .factors = signal.factors,
                         .counters = roots.counters,
                         .counter_count = roots.counter_count};
  for (size_t g = 0; g < group.size(); ++g) {
    const auto [segment, first] = wide_[group[g].stack - roots_.data()];
    const auto& stack = *chunk_[segment].stack;
    for (size_t i = 0; i < group[g].count; ++i) {
      const size_t of_segment = group[g].first + i, b = chunk_[segment].first + of_segment;
      const int place = roots.place[g] + static_cast<int>(i), pitch = pitch_of(stack.n);
      const int index = first + static_cast<int>(of_segment);
      launch.matrices[launch.count++] = {
          .C = stack.C[b],
          .C_scale = stack.C_scale[b],
          .step = stack.step[b],
          .gamma_factor = signal.matrices[index].gamma_factor,
          .root = stack.root[b],
          .root_scale = stack.root_scale[b],
          .A = roots.writable(stack.n, kA, place),
          .A_low = roots.writable(stack.n, iteration.A_split ? kA_low : kNone, place),
          .Q = roots.buffer(stack.n, iteration.Q, place).data,
          .P = roots.T[g] + static_cast<int64_t>(i) * stack.n * pitch,
          .X = layout.D[segment] + static_cast<int64_t>(of_segment) * operand_stride(stack),
          .m = static_cast<int>(stack.m),
          .n = static_cast<int>(stack.n),
          .pitch = pitch,
          .first_block = launch.blocks,
          .first_X_block = launch.X_blocks,
          .index = index,
          .gamma_scale = signal.matrices[index].gamma_scale};
      launch.blocks += row_blocks(stack.n);
      launch.X_blocks += row_blocks(stack.m);
    }
  }
  return launch;
}

// X = T Ĉ^(−1/2), in the place of D.
std::vector<Product> Whitening::products(const Chunk& group, const Layout& roots, const Layout& layout,
                                         const WhiteningLaunch& launch) const {
  std::vector<Product> list;
  int index = 0;
  for (size_t g = 0; g < group.size(); ++g) {
    const size_t segment = wide_[group[g].stack - roots_.data()].segment;
    const auto& stack = *chunk_[segment].stack;
    const int pitch = pitch_of(stack.n), n = static_cast<int>(stack.n);
    const int64_t stride = operand_stride(stack), offset = static_cast<int64_t>(group[g].first) * stride;
    Product product{
        .count = static_cast<int>(group[g].count), .rows = static_cast<int>(stack.m), .columns = n, .B_down = true};
    product.terms[0] = {{layout.T[segment] + offset, pitch, stride}, {roots.T[g], pitch, stack.n * pitch}, n};
    product.epilogue = {
        .alpha_of = launch.alphas + index, .high = layout.D[segment] + offset, .pitch = pitch, .stride = stride};
    list.push_back(product);
    index += product.count;
  }
  return list;
}

cudaError_t Whitening::run(const SignalLaunch& signal, const Layout& layout, const Iteration& iteration, void* scratch,
                           int device, cudaStream_t stream) const {
  cudaError_t error = cudaSuccess;
  const auto then = [&](auto&& launches) {
    if (error == cudaSuccess) error = launches();
  };
  for (const auto& group : groups_) {
    const Layout roots(group, rule_, scratch);
    WhiteningLaunch launch = launch_of(group, roots, signal, layout, iteration);
    place_arrays(launch, static_cast<char*>(scratch) + roots.bytes);
    std::vector<std::vector<Product>> phases;
    for (const auto& product : iteration.products)
      phases.push_back(iteration_products(/*by_norm=*/false, /*bytes=*/false, product, roots));
    then([&] { return launch_root_start(launch, stream); });
    then([&] { return launch_sequence(phases, roots.tickets, device, stream, launch.due); });
    then([&] { return launch_root_operands(launch, stream); });
    then([&] { return launch_products(products(group, roots, layout, launch), {}, {}, device, stream); });
    then([&] { return launch_whitened_factors(launch, stream); });
  }
  return error;
}

}  // namespace prism::cuda
