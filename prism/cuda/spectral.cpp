// The spectral step. Each chunk of matrices goes through
//   operands (M, T, D) (→ whitening) → Gram R (→ its norm) → iteration Q → W ← (1 − lr·λ)W − lr·scale·TQ
// with all its shapes in one launch if the kernels allow it.

#include <cuda_runtime_api.h>

#include <algorithm>

#include "prism/cuda/chunks.h"
#include "prism/cuda/norm.h"
#include "prism/cuda/product.h"
#include "prism/cuda/rescale.h"
#include "prism/cuda/thin.h"
#include "prism/cuda/whitening.h"

namespace prism::cuda {
namespace {

template <class T>
T at_or_null(const std::vector<T>& list, size_t i) {
  return list.empty() ? nullptr : list[i];
}

SignalLaunch signal_launch(const SpectralRule& rule, const StepScalars& scalars, const Chunk& chunk,
                           const Layout& layout) {
  SignalLaunch launch{.settings = {rule, scalars},
                      .count = layout.matrices,
                      .blocks = layout.blocks,
                      .gradient = chunk.front().stack->gradient,
                      .measures = layout.measures,
                      .factors = layout.factors,
                      .misjudged = layout.misjudged,
                      .counters = layout.counters,
                      .counter_count = layout.counter_count};
  int index = 0, block = 0;
  for (size_t s = 0; s < chunk.size(); ++s) {
    const auto& stack = *chunk[s].stack;
    const int64_t stride = operand_stride(stack);
    for (size_t i = 0; i < chunk[s].count; ++i) {
      const size_t b = chunk[s].first + i;
      launch.matrices[index++] = {.G = stack.G[b],
                                  .M = stack.M[b],
                                  .T = layout.T[s] + i * stride,
                                  .D = layout.D[s] == nullptr ? nullptr : layout.D[s] + i * stride,
                                  .step = at_or_null(stack.step, b),
                                  .gamma_factor = at_or_null(stack.gamma_factor, b),
                                  .C = at_or_null(stack.C, b),
                                  .C_scale = at_or_null(stack.C_scale, b),
                                  .m = static_cast<int>(stack.m),
                                  .n = static_cast<int>(stack.n),
                                  .pitch = pitch_of(stack.n),
                                  .k = static_cast<int>(covariance_side(stack)),
                                  .first_block = block,
                                  .gamma_scale = static_cast<float>(stack.gamma_scale)};
      block += signal_blocks(stack);
    }
  }
  return launch;
}

// Makes one product for each segment, with pointers and factors from the segment's first matrix on.
template <class Function>
std::vector<Product> for_segments(const Chunk& chunk, Function&& make) {
  std::vector<Product> products;
  int first = 0;
  for (size_t s = 0; s < chunk.size(); ++s) {
    Product product = make(s, *chunk[s].stack, first);
    product.count = static_cast<int>(chunk[s].count);
    product.epilogue.first = first;
    products.push_back(product);
    first += product.count;
  }
  return products;
}

// XᵀX or, with the sum along the rows, XXᵀ (+ the same of Y); SSᵀ for a stacked X.
Product gram_product(const MatrixStack& stack, int64_t k, bool along, const Operand& X, const Operand* Y) {
  const int inner = static_cast<int>(along ? stack.n : stack.m), side = static_cast<int>(k);
  Product product{.rows = side, .columns = side, .A_down = !along, .B_down = !along, .symmetric = true};
  product.terms[0] = {X, X, inner};
  if (Y != nullptr) product.terms[product.term_count++] = {*Y, *Y, inner};
  return product;
}

// The matrices that the Gram matrices and updates are made of: T, or X in the place of D.
Operand shaped_operand(const Chunk& chunk, size_t s, const Layout& layout) {
  return layout.operand(chunk, s, chunk[s].stack->whitened ? layout.D : layout.T);
}

// Ĉ ← βĈ + (1−β)DᵀD.
std::vector<Product> average_update(const Chunk& chunk, const Layout& layout) {
  return for_segments(chunk, [&](size_t s, const MatrixStack& stack, int first) {
    const bool along = stack.left && !stack.whitened;
    Product product = gram_product(stack, covariance_side(stack), along, layout.operand(chunk, s, layout.D), nullptr);
    product.epilogue = {.alpha_of = layout.factors.mean_alpha + first,
                        .reads_C = true,
                        .writes_C = true,
                        .beta_of = layout.factors.mean_beta + first};
    return product;
  });
}

// R = (TᵀT + γ²DᵀD, γ²Ĉ or δI) / (bound²·trace), as the iteration's A; of whitened matrices, (XXᵀ + γ²I) / …. The kernel
// for compute capability 9.0 also sums its norm, if the rule needs it, and writes low halves in bytes.
std::vector<Product> gram_products(const SpectralRule& rule, const Chunk& chunk, const Layout& layout,
                                   const Iteration& iteration, bool hopper) {
  return for_segments(chunk, [&](size_t s, const MatrixStack& stack, int first) {
    const int64_t k = gram_side(stack);
    const Operand D = layout.operand(chunk, s, layout.D);
    const bool instant = rule.noisy && !rule.averaged;
    Product product = gram_product(stack, k, stack.left || stack.stacked, shaped_operand(chunk, s, layout),
                                   instant && !stack.stacked ? &D : nullptr);
    const double scale = iteration.A_scale / (rule.bound * rule.bound);
    const double uniform = rule.damping / (1 + rule.damping) / static_cast<double>(k);
    product.epilogue = {.alpha = static_cast<float>(scale),
                        .alpha_of = layout.factors.gram_alpha + first,
                        .diagonal = static_cast<float>(stack.whitened ? scale : scale * uniform),
                        .diagonal_of = stack.whitened ? layout.factors.diagonal + first : nullptr,
                        .high = layout.writable(k, kA, layout.place[s]),
                        .low = layout.writable(k, iteration.A_split ? kA_low : kNone, layout.place[s]),
                        .low_in_bytes = hopper && iteration.A_bytes && k >= kSmallestInBytes,
                        .lower = iteration.A_lower,
                        .pitch = pitch_of(k),
                        .stride = k * pitch_of(k),
                        .reads_C = rule.averaged && !stack.whitened,
                        .beta = static_cast<float>(scale),
                        .beta_of = layout.factors.gram_beta + first};
    const int index = layout.first_of.at(k) + layout.place[s];
    if (rule.by_norm && hopper) {
      product.epilogue.norms = {.squares = layout.norm_parts + layout.norm_part(k, layout.place[s]),
                                .arrived = layout.normed + index,
                                .factor = layout.powers[0] + index,
                                .square = layout.powers[1] + index,
                                .update = layout.factors.update + first,
                                .scale = static_cast<float>(scale)};
    }
    return product;
  });
}

// The norms of the Gram matrices of a chunk. Their A is A_scale·R/bound² for R of trace 1.
NormLaunch norm_launch(const SpectralRule& rule, const Chunk& chunk, const Layout& layout, const Iteration& iteration) {
  NormLaunch launch{.count = layout.matrices,
                    .A_scale = static_cast<float>(iteration.A_scale / (rule.bound * rule.bound)),
                    .squares = layout.squares,
                    .factor = layout.powers[0],
                    .square = layout.powers[1],
                    .update = layout.factors.update};
  int index = 0;
  for (size_t s = 0; s < chunk.size(); ++s) {
    const int64_t k = gram_side(*chunk[s].stack);
    for (int i = 0; i < static_cast<int>(chunk[s].count); ++i) {
      const int place = layout.place[s] + i;
      launch.matrices[index++] = {.A = layout.buffer(k, kA, place).data,
                                  .k = static_cast<int>(k),
                                  .pitch = pitch_of(k),
                                  .first_block = launch.blocks,
                                  .place = layout.first_of.at(k) + place};
      launch.blocks += norm_blocks(k);
    }
  }
  return launch;
}

// W ← (1 − lr·λ)W − lr·scale·O for O = TQ/(bound·√trace), or √norm. From the left: QᵀT; for a stack: the first m rows of
// QᵀS. If the update is rescaled, O is stored instead.
std::vector<Product> update_products(const SpectralRule& rule, const Chunk& chunk, const Layout& layout,
                                     const Iteration& iteration) {
  return for_segments(chunk, [&](size_t s, const MatrixStack& stack, int first) {
    const Operand T = shaped_operand(chunk, s, layout);
    const Operand Q = layout.buffer(gram_side(stack), iteration.Q, layout.place[s]);
    const bool before = stack.left || stack.stacked;  // Q is the left factor
    Product product{
        .rows = static_cast<int>(stack.m), .columns = static_cast<int>(stack.n), .A_down = before, .B_down = true};
    product.terms[0] = {before ? Q : T, before ? T : Q, static_cast<int>(gram_side(stack))};
    const double alpha = 1 / (iteration.Q_scale * rule.bound);
    if (rule.rescales()) {
      product.epilogue = {.alpha = static_cast<float>(kHeldUpdate * alpha),
                          .alpha_of = layout.factors.update + first,
                          .high = layout.O[s],
                          .pitch = pitch_of(stack.n),
                          .stride = stack.m * pitch_of(stack.n)};
      return product;
    }
    product.epilogue = {.alpha = static_cast<float>(alpha),
                        .alpha_of = layout.factors.update + first,
                        .weights = true,
                        .scale = static_cast<float>(stack.scale),
                        .weight = stack.weight,
                        .has_master = !stack.master.empty()};
    return product;
  });
}

// Writes the stored updates of a chunk to its weights.
RescaleLaunch rescale_launch(const SpectralRule& rule, const Chunk& chunk, const Layout& layout, const Rates& rates) {
  RescaleLaunch launch{.row_beta = static_cast<float>(rule.row_beta),
                       .fixed_norm = rule.fixed_norm,
                       .rates = rates,
                       .squares = layout.row_squares,
                       .row_factors = layout.row_factors,
                       .factors = layout.norm_factors};
  for (size_t s = 0; s < chunk.size(); ++s) {
    const auto& stack = *chunk[s].stack;
    const int pitch = pitch_of(stack.n);
    for (size_t i = 0; i < chunk[s].count; ++i) {
      const size_t b = chunk[s].first + i;
      launch.matrices[launch.count++] = {.O = layout.O[s] + static_cast<int64_t>(i) * stack.m * pitch,
                                         .W = stack.W[b],
                                         .master = at_or_null(stack.master, b),
                                         .v = at_or_null(stack.row_moment, b),
                                         .weight = stack.weight,
                                         .scale = static_cast<float>(stack.scale),
                                         .m = static_cast<int>(stack.m),
                                         .n = static_cast<int>(stack.n),
                                         .pitch = pitch,
                                         .first_row = launch.rows,
                                         .first_block = launch.blocks};
      launch.rows += static_cast<int>(stack.m);
      launch.blocks += rescale_blocks(stack.m, stack.n);
    }
  }
  return launch;
}

Pointers pointers_of(const Chunk& chunk, bool weights) {
  Pointers pointers{};
  int index = 0;
  for (const auto& [stack, first, count] : chunk) {
    for (size_t b = first; b < first + count; ++b, ++index) {
      pointers.W[index] = weights ? stack->W[b] : at_or_null(stack->C, b);
      pointers.master[index] = at_or_null(stack->master, b);
    }
  }
  return pointers;
}

// The plan of the last rule that this thread used. It is kept, because options rarely change from step to step.
const Iteration& iteration_for(const SpectralRule& rule) {
  thread_local struct {
    std::vector<GramStep> steps;
    double bound = 0;
    Iteration iteration;
  } last;
  const auto equal = [](const GramStep& a, const GramStep& b) {
    return a.c == b.c && a.centered == b.centered && a.split == b.split;
  };
  if (last.bound != rule.bound ||
      !std::equal(last.steps.begin(), last.steps.end(), rule.steps.begin(), rule.steps.end(), equal)) {
    last = {rule.steps, rule.bound, plan_iteration(rule.steps, rule.bound)};
  }
  return last.iteration;
}

int64_t scratch_bytes(const SpectralRule& rule, const Chunk& chunk, int processors) {
  return Layout(chunk, rule, nullptr).bytes + Whitening(rule, chunk, processors).bytes();
}

// The launches of a chunk, stage by stage as in prism/optim/step.cpp.
class ChunkStep {
 public:
  ChunkStep(const SpectralRule& rule, const StepScalars& scalars, const Chunk& chunk, void* scratch, int device,
            int processors, cudaStream_t stream)
      : rule_(rule),
        chunk_(chunk),
        layout_(chunk, rule, scratch),
        whitening_(rule, chunk, processors),
        whitening_scratch_(static_cast<char*>(scratch) + layout_.bytes),
        iteration_(iteration_for(rule)),
        signal_(signal_launch(rule, scalars, chunk, layout_)),
        rates_{scalars.lr, scalars.apply, static_cast<float>(scalars.weight_decay)},
        covariances_(pointers_of(chunk, /*weights=*/false)),
        device_(device),
        stream_(stream) {}

  // M ← βM + (1−β)G, and T and γD in fp16 with their scales.
  void operands() {
    then([&] { return launch_operands(signal_, device_, stream_); });
  }

  // Takes operands of whole matrices that other processes formed, (B, m, n) without gaps, in place of operands(). `sums`
  // are the measures of the matrices. D may be null between refreshes of an average.
  void receive(const __half* T, const __half* D, const double* sums) {
    signal_.sums = sums + chunk_.front().first * kSums;
    then([&] { return launch_factors(signal_, stream_); });
    for (size_t s = 0; s < chunk_.size(); ++s) {
      const auto& stack = *chunk_[s].stack;
      for (size_t i = 0; i < chunk_[s].count; ++i) {
        const auto offset = static_cast<int64_t>(chunk_[s].first + i) * stack.m * stack.n;
        const auto place = static_cast<int64_t>(i) * operand_stride(stack);
        copy_rows(layout_.T[s] + place, T + offset, stack);
        if (D != nullptr) copy_rows(layout_.D[s] + place, D + offset, stack);
      }
    }
    refreshes_ = D != nullptr;
  }

  // The Gram matrix R of the operands, and its inverse root Q.
  void shape() {
    bool hopper = false;
    then([&] { return takes_hopper(device_, &hopper); });
    if (rule_.averaged && refreshes_) multiply(average_update(chunk_, layout_), covariances_);
    then([&] { return whitening_.run(signal_, layout_, iteration_, whitening_scratch_, device_, stream_); });
    multiply(gram_products(rule_, chunk_, layout_, iteration_, hopper), covariances_);
    if (rule_.by_norm && !hopper)
      then([&] { return launch_norm(norm_launch(rule_, chunk_, layout_, iteration_), stream_); });
    std::vector<std::vector<Product>> phases;
    for (const auto& product : iteration_.products)
      phases.push_back(iteration_products(rule_.by_norm, /*bytes=*/hopper, product, layout_));
    then([&] { return launch_sequence(phases, layout_.tickets, device_, stream_); });
  }

  // W ← (1 − lr·λ)W − lr·scale·TQ: the update is the last product, written as it is formed, or stored and rescaled.
  void write() {
    multiply(update_products(rule_, chunk_, layout_, iteration_), pointers_of(chunk_, /*weights=*/true));
    if (rule_.rescales()) then([&] { return launch_rescale(rescale_launch(rule_, chunk_, layout_, rates_), stream_); });
  }

  cudaError_t error() const { return error_; }

 private:
  template <class Launch>
  void then(Launch&& launch) {
    if (error_ == cudaSuccess) error_ = launch();
  }
  void copy_rows(__half* target, const __half* source, const MatrixStack& stack) {
    const auto bytes = [](int64_t elements) { return static_cast<size_t>(elements) * sizeof(__half); };
    then([&] {
      return cudaMemcpy2DAsync(target, bytes(pitch_of(stack.n)), source, bytes(stack.n), bytes(stack.n),
                               static_cast<size_t>(stack.m), cudaMemcpyDeviceToDevice, stream_);
    });
  }
  void multiply(const std::vector<Product>& products, const Pointers& pointers) {
    then([&] { return launch_products(products, pointers, rates_, device_, stream_); });
  }

  const SpectralRule& rule_;
  const Chunk& chunk_;
  Layout layout_;
  Whitening whitening_;
  void* whitening_scratch_;
  const Iteration& iteration_;
  SignalLaunch signal_;
  Rates rates_;
  Pointers covariances_;
  int device_;
  cudaStream_t stream_;
  bool refreshes_ = true;  // the average covariance
  cudaError_t error_ = cudaSuccess;
};

// Parts of matrices, at most kMaxMatrices of them from `first` on: each as one row, since the work on them is elementwise.
SignalLaunch part_launch(const SpectralRule& rule, const MatrixStack& parts, size_t first) {
  SignalLaunch launch{.settings = {rule, StepScalars{}},
                      .count = static_cast<int>(std::min<size_t>(parts.G.size() - first, kMaxMatrices)),
                      .gradient = parts.gradient};
  const int elements = static_cast<int>(parts.m * parts.n);
  for (int i = 0; i < launch.count; ++i) {
    const size_t b = first + static_cast<size_t>(i);
    launch.matrices[i] = {.G = parts.G[b],
                          .M = parts.M[b],
                          .T = nullptr,
                          .D = nullptr,
                          .step = at_or_null(parts.step, b),
                          .gamma_factor = at_or_null(parts.gamma_factor, b),
                          .C = nullptr,
                          .C_scale = nullptr,
                          .m = 1,
                          .n = elements,
                          .pitch = elements,
                          .k = 0,
                          .first_block = launch.blocks,
                          .gamma_scale = static_cast<float>(parts.gamma_scale)};
    launch.blocks += signal_blocks(parts);
  }
  return launch;
}

}  // namespace

int measure_parts(const SpectralRule& rule, const MatrixStack& parts, double* sums, const Allocate& allocate,
                  void* stream) {
  const size_t most = std::min<size_t>(parts.G.size(), kMaxMatrices);
  auto* measures = static_cast<Measure*>(allocate(most * static_cast<size_t>(signal_blocks(parts)) * sizeof(Measure)));
  cudaError_t error = cudaSuccess;
  for (size_t first = 0; first < parts.G.size() && error == cudaSuccess; first += kMaxMatrices) {
    SignalLaunch launch = part_launch(rule, parts, first);
    launch.measures = measures;
    error = launch_sums(launch, sums + first * kSums, static_cast<cudaStream_t>(stream));
  }
  return error;
}

int form_operands(const SpectralRule& rule, const MatrixStack& parts, const double* sums, void* T, void* D,
                  const Allocate& allocate, void* stream) {
  auto* cuda_stream = static_cast<cudaStream_t>(stream);
  if (sums == nullptr)
    return launch_thin_operands(rule, parts, static_cast<float*>(T), static_cast<float*>(D), cuda_stream);
  auto* factors = static_cast<float*>(allocate(2 * kMaxMatrices * sizeof(float)));
  const int64_t elements = parts.m * parts.n;
  cudaError_t error = cudaSuccess;
  for (size_t first = 0; first < parts.G.size() && error == cudaSuccess; first += kMaxMatrices) {
    SignalLaunch launch = part_launch(rule, parts, first);
    launch.sums = sums + first * kSums;
    launch.factors.T = factors;
    launch.factors.D = factors + kMaxMatrices;
    for (int i = 0; i < launch.count; ++i) {
      const int64_t offset = (static_cast<int64_t>(first) + i) * elements;
      launch.matrices[i].T = static_cast<__half*>(T) + offset;
      if (D != nullptr) launch.matrices[i].D = static_cast<__half*>(D) + offset;
    }
    error = launch_part_operands(launch, cuda_stream);
  }
  return error;
}

int shape_operands(const SpectralRule& rule, const MatrixStack& stack, const double* sums, const void* T, const void* D,
                   const Allocate& allocate, int device, void* stream) {
  // The update is written as W ← W − lr·scale·O, from W = 0 with the rate −1.
  const StepScalars scalars{.lr = {.value = -1}};
  if (is_thin(rule, stack)) {
    MatrixStack thin = stack;
    for (size_t b = 0; b < thin.G.size(); ++b)
      thin.G[b] = static_cast<const float*>(T) + static_cast<int64_t>(b) * stack.m * stack.n;
    void* scratch = allocate(static_cast<size_t>(thin_bytes({&thin})));
    return launch_thin(rule, scalars, iteration_for(rule), {&thin}, static_cast<const float*>(D), scratch, device,
                       static_cast<cudaStream_t>(stream));
  }
  int processors = 0;
  cudaError_t error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  const auto chunks = make_chunks({&stack}, processors);
  int64_t bytes = 0;
  for (const auto& chunk : chunks) bytes = std::max(bytes, scratch_bytes(rule, chunk, processors));
  void* scratch = allocate(static_cast<size_t>(bytes));
  for (const auto& chunk : chunks) {
    if (error != cudaSuccess) break;
    ChunkStep step(rule, scalars, chunk, scratch, device, processors, static_cast<cudaStream_t>(stream));
    step.receive(static_cast<const __half*>(T), static_cast<const __half*>(D), sums);
    step.shape();
    step.write();
    error = step.error();
  }
  return error;
}

int spectral_step(const SpectralRule& rule, const StepScalars& scalars, const std::vector<MatrixStack>& stacks,
                  const Allocate& allocate, int device, void* stream) {
  auto* cuda_stream = static_cast<cudaStream_t>(stream);
  std::vector<float*> counters;
  for (const auto& stack : stacks) {
    for (float* step : stack.step) {
      if (counters.empty() || counters.back() != step) counters.push_back(step);
    }
  }
  int processors = 0;
  cudaError_t error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  std::vector<const MatrixStack*> thin, others;
  for (const auto& stack : stacks) (is_thin(rule, stack) ? thin : others).push_back(&stack);
  const auto chunks = make_chunks(others, processors);
  int64_t bytes = thin_bytes(thin);
  for (const auto& chunk : chunks) bytes = std::max(bytes, scratch_bytes(rule, chunk, processors));
  void* scratch = allocate(static_cast<size_t>(bytes));
  error = launch_count(counters.data(), static_cast<int>(counters.size()), scalars.apply, cuda_stream);
  if (error == cudaSuccess && !thin.empty())
    error = launch_thin(rule, scalars, iteration_for(rule), thin, nullptr, scratch, device, cuda_stream);
  for (const auto& chunk : chunks) {
    if (error != cudaSuccess) break;
    ChunkStep step(rule, scalars, chunk, scratch, device, processors, cuda_stream);
    step.operands();
    step.shape();
    step.write();
    error = step.error();
  }
  return error;
}

}  // namespace prism::cuda
