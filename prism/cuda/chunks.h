#pragma once

// The matrices of a step are processed in chunks whose operands fit the scratch memory.

#include <map>
#include <vector>

#include "prism/cuda/iteration.h"
#include "prism/cuda/signal.h"

namespace prism::cuda {

int pitch_of(int64_t columns);                      // elements from row to row of an operand with so many columns
int64_t gram_side(const MatrixStack& stack);        // k of its k×k Gram matrices
int64_t covariance_side(const MatrixStack& stack);  // the same of its averaged covariances
int64_t operand_stride(const MatrixStack& stack);   // elements from one matrix's operand T to the next
int signal_blocks(const MatrixStack& stack);        // blocks that read one matrix
int norm_blocks(int64_t k);                         // blocks that read one k×k Gram matrix

// A range of adjacent matrices of a stack.
struct Segment {
  const MatrixStack* stack;
  size_t first, count;
};
using Chunk = std::vector<Segment>;

constexpr int64_t kScratchAlignment = 256;
constexpr int64_t kChunkBytes = int64_t{2} << 30;  // enough matrices of any size to keep every multiprocessor busy

// Makes chunks of about equal size, near `chunk_bytes` of scratch memory each, cut where their tiles best fill the
// last round of the device's multiprocessors, of which two share a tile.
std::vector<Chunk> make_chunks(const std::vector<const MatrixStack*>& stacks, int processors,
                               int64_t chunk_bytes = kChunkBytes);

// The layout of a chunk's scratch memory. Without memory it only computes the size.
class Layout {
 public:
  Layout(const Chunk& chunk, const SpectralRule& rule, void* scratch);

  Operand operand(const Chunk& chunk, size_t s, const std::vector<__half*>& of) const {
    const auto& stack = *chunk[s].stack;
    return {of[s], pitch_of(stack.n), operand_stride(stack)};
  }
  // Buffer b of all matrices with Gram side k, from matrix `first` on.
  Operand buffer(int64_t k, int b, int first = 0) const {
    const int64_t stride = k * pitch_of(k);
    return {b == kNone ? nullptr : buffers.at(k)[b] + first * stride, pitch_of(k), stride};
  }
  // The first of the parts of the norm of the Gram matrices with side k, from matrix `first` on.
  int64_t norm_part(int64_t k, int first) const { return first_part.at(k) + int64_t{first} * norm_places(k); }
  __half* writable(int64_t k, int b, int first = 0) const { return const_cast<__half*>(buffer(k, b, first).data); }

  std::vector<__half*> T, D;        // of each segment
  std::vector<__half*> O;           // of each segment, if updates are rescaled
  std::vector<int> place;           // index of each segment's first matrix among those of its Gram side
  std::map<int64_t, int> sides;     // Gram side → matrices
  std::map<int64_t, int> first_of;  // Gram side → index of its first matrix in `powers`
  std::map<int64_t, int64_t> first_part;
  std::map<int64_t, std::vector<__half*>> buffers;
  int matrices = 0, blocks = 0, rows = 0;
  Measure* measures = nullptr;
  SignalFactors factors{};
  int* misjudged = nullptr;
  double* squares = nullptr;
  float* norm_parts = nullptr;

  // Counters, all of which a step sets to 0 first.
  int *counters = nullptr, counter_count = 0;
  int *progress = nullptr, *normed = nullptr;  // of each matrix, as `powers`
  int* tickets = nullptr;                      // of the launches of a sequence
  float* powers[2] = {};                       // the factor missing in the iteration's A, and its square
  float *row_squares = nullptr, *row_factors = nullptr, *norm_factors = nullptr;  // of rescaled updates
  int64_t bytes = 0;

 private:
  template <class T>
  T* take(int64_t size);

  char* memory_;
};

// The Gram side from which on low halves are in bytes, with the kernel for compute capability 9.0. For smaller ones,
// writing bytes takes as long as their products save.
constexpr int64_t kSmallestInBytes = 2048;

// One step of the iteration: a product for each Gram side. With `by_norm`, the factors in `powers` are those missing in A.
// With `bytes`, low halves may be in bytes.
std::vector<Product> iteration_products(bool by_norm, bool bytes, const IterationProduct& step, const Layout& layout);

}  // namespace prism::cuda
