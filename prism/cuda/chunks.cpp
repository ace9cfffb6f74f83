#include "prism/cuda/chunks.h"

#include <algorithm>

#include "prism/cuda/norm.h"

namespace prism::cuda {
namespace {

int64_t pieces(int64_t size, int64_t piece) { return (size + piece - 1) / piece; }

int64_t operand_bytes(const MatrixStack& stack) {
  return stack.m * pitch_of(stack.n) * static_cast<int64_t>(sizeof(__half));
}
int64_t buffer_bytes(int64_t k) { return k * pitch_of(k) * static_cast<int64_t>(sizeof(__half)); }

// The number of buffers of the iteration; the last one is only for low halves in bytes.
int buffer_count(int64_t k) {
  static_assert(kZ_bytes + 1 == kBuffers);
  return k < kSmallestInBytes ? kZ_bytes : kBuffers;
}

int64_t matrix_bytes(const MatrixStack& stack) {
  const int64_t k = gram_side(stack);
  return 2 * operand_bytes(stack) + buffer_count(k) * buffer_bytes(k);
}

// The number of 256×256 tiles of a symmetric k×k result. Tiles of the same k take equally long.
int64_t tiles_of(const MatrixStack& stack) {
  const int64_t rows = pieces(gram_side(stack), 256);
  return rows * (rows + 1) / 2;
}

}  // namespace

int pitch_of(int64_t columns) { return static_cast<int>(pieces(columns, 8) * 8); }

int64_t gram_side(const MatrixStack& stack) {
  if (stack.stacked) return 2 * stack.m;
  return stack.left ? stack.m : stack.n;
}

int64_t covariance_side(const MatrixStack& stack) { return stack.whitened ? stack.n : gram_side(stack); }

// With `stacked`, D lies under T: one operand of 2m rows.
int64_t operand_stride(const MatrixStack& stack) { return (stack.stacked ? 2 : 1) * stack.m * pitch_of(stack.n); }

int signal_blocks(const MatrixStack& stack) { return static_cast<int>(pieces(stack.m * stack.n, kBlockElements)); }

int norm_blocks(int64_t k) { return static_cast<int>(pieces(k, kRowsOfSquares)); }

std::vector<Chunk> make_chunks(const std::vector<const MatrixStack*>& stacks, int processors, int64_t chunk_bytes) {
  const int64_t pairs = std::max(1, processors / 2);
  struct One {
    const MatrixStack* stack;
    size_t index;
  };
  std::vector<One> all;
  int64_t total = 0;
  for (const auto* stack : stacks) {
    for (size_t i = 0; i < stack->G.size(); ++i) all.push_back({stack, i});
    total += matrix_bytes(*stack) * static_cast<int64_t>(stack->G.size());
  }
  const int64_t wanted = std::max<int64_t>(1, pieces(total, chunk_bytes));
  const int64_t limit = total / wanted + total / (4 * wanted) + 1;
  std::vector<Chunk> chunks;
  for (size_t begin = 0; begin < all.size();) {
    size_t end = begin, best = begin;
    double best_filled = 0;
    int64_t bytes = 0, tiles = 0;
    const auto fits = [&](const One& one) {
      return end == begin || (bytes + matrix_bytes(*one.stack) <= limit && end - begin < kMaxMatrices &&
                              one.stack->gradient == all[begin].stack->gradient);
    };
    while (end < all.size() && fits(all[end])) {
      bytes += matrix_bytes(*all[end].stack);
      tiles += tiles_of(*all[end].stack);
      ++end;
      const int64_t rounds = pieces(tiles, pairs);
      const double filled = static_cast<double>(tiles) / static_cast<double>(rounds * pairs);
      if (2 * bytes >= limit && filled >= best_filled) best_filled = filled, best = end;
    }
    if (end == all.size() || best == begin) best = end;
    Chunk chunk;
    for (; begin < best; ++begin) {
      if (chunk.empty() || chunk.back().stack != all[begin].stack)
        chunk.push_back({all[begin].stack, all[begin].index, 0});
      ++chunk.back().count;
    }
    chunks.push_back(std::move(chunk));
  }
  return chunks;
}

template <class T>
T* Layout::take(int64_t size) {
  char* here = memory_ == nullptr ? nullptr : memory_ + bytes;
  bytes += pieces(size, kScratchAlignment) * kScratchAlignment;
  return reinterpret_cast<T*>(here);
}

Layout::Layout(const Chunk& chunk, const SpectralRule& rule, void* scratch) : memory_(static_cast<char*>(scratch)) {
  for (const auto& segment : chunk) {
    const auto& stack = *segment.stack;
    const auto count = static_cast<int64_t>(segment.count);
    T.push_back(take<__half>(operand_bytes(stack) * count * (stack.stacked ? 2 : 1)));
    if (stack.stacked) {
      D.push_back(memory_ == nullptr ? nullptr : T.back() + stack.m * pitch_of(stack.n));
    } else {
      D.push_back(rule.noisy ? take<__half>(operand_bytes(stack) * count) : nullptr);
    }
    if (rule.rescales()) O.push_back(take<__half>(operand_bytes(stack) * count));
    const int64_t k = gram_side(stack);
    place.push_back(sides[k]);
    sides[k] += static_cast<int>(count);
    matrices += static_cast<int>(count);
    blocks += static_cast<int>(count) * signal_blocks(stack);
    rows += static_cast<int>(count * stack.m);
  }
  int first = 0;
  int64_t square_blocks = 0, parts = 0;
  for (const auto& [k, count] : sides) {
    first_of[k] = first;
    first += count;
    square_blocks += count * norm_blocks(k);
    first_part[k] = parts;
    parts += int64_t{count} * norm_places(k);
    auto& list = buffers[k];
    for (int b = 0; b < buffer_count(k); ++b) list.push_back(take<__half>(buffer_bytes(k) * count));
  }
  squares = take<double>(square_blocks * static_cast<int64_t>(sizeof(double)));
  measures = take<Measure>(blocks * static_cast<int64_t>(sizeof(Measure)));
  for (float** array : {&factors.T, &factors.D, &factors.gram_alpha, &factors.gram_beta, &factors.mean_alpha,
                        &factors.mean_beta, &factors.update, &factors.diagonal, &powers[0], &powers[1]}) {
    *array = take<float>(matrices * static_cast<int64_t>(sizeof(float)));
  }
  misjudged = take<int>(matrices * static_cast<int64_t>(sizeof(int)));
  if (rule.by_norm) norm_parts = take<float>(parts * static_cast<int64_t>(sizeof(float)));
  counter_count = 2 * matrices + kMaxSequenceLaunches;
  counters = take<int>(counter_count * static_cast<int64_t>(sizeof(int)));
  if (counters != nullptr) {
    progress = counters;
    normed = progress + matrices;
    tickets = normed + matrices;
  }
  if (!rule.rescales()) return;
  row_squares = take<float>(rows * static_cast<int64_t>(sizeof(float)));
  row_factors = take<float>(rows * static_cast<int64_t>(sizeof(float)));
  norm_factors = take<float>(matrices * static_cast<int64_t>(sizeof(float)));
}

std::vector<Product> iteration_products(bool by_norm, bool bytes, const IterationProduct& step, const Layout& layout) {
  std::vector<Product> products;
  for (const auto& [side, count] : layout.sides) {
    const int64_t k = side;
    const int n = static_cast<int>(k);
    Product product{.count = count, .rows = n, .columns = n, .term_count = 0, .symmetric = step.symmetric};
    const auto term = [&](Buffer X, Buffer Y, bool in_bytes) {
      product.terms[product.term_count++] = {layout.buffer(k, X), layout.buffer(k, Y), n, in_bytes};
    };
    const bool adds = step.adds_low(k), may_convert = bytes && k >= kSmallestInBytes;
    const bool in_bytes = may_convert && step.reads_bytes;
    if (!adds && step.X_low != kNone) term(step.X_low, in_bytes ? kZ_bytes : step.Y, in_bytes);
    if (!adds && step.Y_low != kNone) term(in_bytes ? kZ_bytes : step.X, step.Y_low, in_bytes);
    term(step.X, step.Y, false);
    product.A_lower = step.X_lower;
    product.B_lower = step.Y_lower;
    const auto factors = [&](int power) {
      return by_norm && power > 0 ? layout.powers[power - 1] + layout.first_of.at(k) : nullptr;
    };
    product.epilogue = {.alpha = step.alpha,
                        .alpha_of = factors(step.alpha_power),
                        .c1 = step.c1,
                        .diagonal = step.diagonal,
                        .c1_of = factors(step.c1_power),
                        .C1 = layout.writable(k, step.C1),
                        .high = layout.writable(k, step.high),
                        .low = layout.writable(k, step.low),
                        .bytes = layout.writable(k, may_convert ? step.copy : kNone),
                        .low_in_bytes = may_convert && step.writes_bytes,
                        .lower = step.lower,
                        .pitch = pitch_of(k),
                        .stride = k * pitch_of(k)};
    if (adds) {
      product.epilogue.c1 = step.added;
      product.epilogue.c1_of = product.epilogue.alpha_of;
      product.epilogue.C1 = layout.writable(k, step.X_low != kNone ? step.X_low : step.Y_low);
    }
    product.progress = layout.progress + layout.first_of.at(k);
    products.push_back(product);
  }
  return products;
}

}  // namespace prism::cuda
