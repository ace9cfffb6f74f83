#pragma once

// Whitens the momenta of wide matrices: X = T Ĉ^(−1/2), in the place of D, and the factors of the Gram matrix XXᵀ + γ²I.
// The roots are state. The iteration on n×n matrices computes them at the steps 1, 1 + k, 1 + 2k, … of a matrix; the device
// decides which matrices are due, so that one graph serves every step.

#include "prism/cuda/chunks.h"

namespace prism::cuda {

constexpr int kRowsOfWhitening = 16;  // rows of a matrix that one block reads

struct WhiteningMatrix {
  const float *C, *C_scale, *step, *gamma_factor;
  float *root, *root_scale;  // Ĉ^(−1/2) = root/root_scale
  __half *A, *A_low;         // the iteration's first matrix; A_low may be null
  const __half* Q;           // its result
  __half* P;                 // the root as an operand
  const __half* X;           // rows of `pitch`, as A, Q and P
  int m, n, pitch;
  int first_block, first_X_block;  // among blocks of rows of all roots, and of all X
  int index;                       // in `factors`
  float gamma_scale;
};

struct WhiteningLaunch {
  WhiteningMatrix matrices[kMaxMatrices] = {};
  int count = 0, blocks = 0, X_blocks = 0;
  double covariance_beta = 0, covariance_every = 1, root_every = 1;
  double bound = 1;
  bool by_norm = false;
  float A_scale = 1, Q_scale = 1;
  Number gamma = {};
  const bool* apply = nullptr;
  SignalFactors factors = {};  // of the chunk

  // Scratch memory.
  double *squares = nullptr, *traces = nullptr;  // of each block's rows of C
  double* X_squares = nullptr;                   // of each block's rows of X
  double* X_powers = nullptr;                    // of each matrix: X as an operand, over X
  float *start = nullptr, *scales = nullptr;     // of each matrix: A over C; root_scale after this step
  float *powers = nullptr, *alphas = nullptr;    // of each matrix: the root as an operand, over the root; X over TP
  int* norms = nullptr;                          // of each matrix: the bits of the largest norm of a row of P
  int* due = nullptr;                            // 1 if a root is due
  int *counters = nullptr, counter_count = 0;    // set to 0
};

// Decides which roots are due, and writes A of those.
cudaError_t launch_root_start(const WhiteningLaunch& launch, cudaStream_t stream);

// Stores the roots that were due, and writes all roots as operands.
cudaError_t launch_root_operands(const WhiteningLaunch& launch, cudaStream_t stream);

// Computes the factors of the Gram matrices and updates from X.
cudaError_t launch_whitened_factors(const WhiteningLaunch& launch, cudaStream_t stream);

// The whitening of a chunk's wide matrices, in groups whose n×n matrices fit the scratch memory.
class Whitening {
 public:
  Whitening(const SpectralRule& rule, const Chunk& chunk, int processors);

  int64_t bytes() const { return bytes_; }  // of scratch memory
  cudaError_t run(const SignalLaunch& signal, const Layout& layout, const Iteration& iteration, void* scratch,
                  int device, cudaStream_t stream) const;

 private:
  struct Wide {
    size_t segment;  // of the chunk
    int first;       // index of its first matrix in the chunk
  };
  WhiteningLaunch launch_of(const Chunk& group, const Layout& roots, const SignalLaunch& signal, const Layout& layout,
                            const Iteration& iteration) const;
  std::vector<Product> products(const Chunk& group, const Layout& roots, const Layout& layout,
                                const WhiteningLaunch& launch) const;

  SpectralRule rule_;  // of the roots
  bool by_norm_;
  const Chunk& chunk_;
  std::vector<Wide> wide_;
  std::vector<MatrixStack> roots_;  // n×n, of each in wide_
  std::vector<Chunk> groups_;
  int64_t bytes_ = 0;
};

}  // namespace prism::cuda
