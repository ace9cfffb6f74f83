#pragma once

// Whole optimizer steps in CUDA on plain pointers: the only header that `optim` includes. A build without CUDA links
// stub.cpp, in which `available` returns false and the other functions are never called.
//
// Nothing here waits for the device, allocates or tunes itself, and every sum is formed in a fixed order: the same
// input gives the same bits, eager or replayed from a graph.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace prism::cuda {

enum class Real { Float32, Float16, BFloat16 };

// A scalar of the step: a pointer on the device, or a value on the host.
struct Number {
  const void* device = nullptr;
  bool is_double = false;  // on the device: float64 instead of float32
  double value = 0;
};

// The scalars that every rule needs.
struct StepScalars {
  Number lr = {};
  const bool* apply = nullptr;        // on the device: false leaves weights and state unchanged; null: true
  const float* grad_scale = nullptr;  // on the device: gradients are divided by it; null: 1
  double weight_decay = 0;
  bool maximize = false;
};

// A stack of B equally shaped matrices, each with its own pointers.
struct MatrixStack {
  int64_t m = 0, n = 0;
  bool left = false;  // shaped by the m×m Gram TTᵀ instead of the n×n Gram TᵀT
  // Shape from the right through the 2m×2m Gram matrix of S = [T; γD]: with its inverse root Q, O is the first m rows
  // of QS. This is the smaller form if n > 2m. Needs left = false and a rule that is noisy and not averaged.
  bool stacked = false;
  // Shape the whitened momentum X = T Ĉ^(−1/2) from the left, by the Gram matrix XXᵀ + γ²I. C is (n, n). Needs left = true,
  // an averaged rule, step counters and roots.
  bool whitened = false;
  Real gradient = Real::Float32, weight = Real::Float32;
  std::vector<const void*> G = {};              // B, each contiguous
  std::vector<void*> W = {};                    // B, each contiguous
  std::vector<float*> M = {};                   // B
  std::vector<float*> master = {};              // B float32 copies of 16-bit weights, or empty
  std::vector<float*> step = {};                // B counters of steps, or empty; matrices of one parameter share one
  std::vector<float*> C = {};                   // B averaged covariances, (k, k) for Gram matrices (k, k), or empty
  std::vector<float*> C_scale = {};             // B
  std::vector<float*> root = {};                // B roots Ĉ^(−1/2) = root/root_scale, (n, n), if whitened
  std::vector<float*> root_scale = {};          // B
  double gamma_scale = 1;                       // of γ for this shape
  std::vector<const float*> gamma_factor = {};  // B more factors of γ on the device, or empty
  std::vector<float*> row_moment = {};          // B running means of the squares of the update's m rows, or empty
  double scale = 1;                             // of the update
};

// One step of the iteration on the Gram matrix R (prism/linalg/gram.h).
struct GramStep {
  std::vector<double> c = {};  // Z = c₀ + c₁A + c₂A² + …; three coefficients or five
  bool centered = false;       // A = R − I instead of R
  bool split = false;          // RZ and ZRZ on operands of two fp16 halves
};

// PRISM (instant and averaged covariance), Muon and Tikhonov Muon: the rules of prism/optim/prism.h and muon.h.
struct SpectralRule {
  double momentum = 0.95;
  bool nesterov = true;
  bool bias_correction = false;
  bool noisy = false;            // DᵀD or its average is added to the Gram matrix
  Number gamma = {};             // γ
  bool averaged = false;         // the covariance is the average Ĉ
  double covariance_beta = 0;    // β₂
  int64_t covariance_every = 1;  // k: the average is refreshed at the steps 1, 1 + k, 1 + 2k, … of a matrix
  int64_t root_every = 1;        // the same for the roots of whitened matrices
  double damping = 0;            // Tikhonov's δ divided by the mean of σ²
  std::vector<GramStep> steps = {};
  double bound = 1;              // the Gram matrix is divided by bound² and its trace,
  bool by_norm = false;          // or by bound² and its Frobenius norm
  bool normalizes_rows = false;  // rows of the update are divided by the roots of their running mean squares
  double row_beta = 0;           // β₂ of these means
  bool fixed_norm = false;       // the update is scaled to the Frobenius norm √min(m, n)

  bool rescales() const { return normalizes_rows || fixed_norm; }
};

// Returns true if one thread block takes the whole step of each matrix of the stack (prism/cuda/thin.h). This
// depends on the rule and on shape and side of the stack.
bool is_thin(const SpectralRule& rule, const MatrixStack& stack);

// Returns true if this device runs these kernels: compute capability 8.0 or more.
bool available(int device);

// Returns true while launches on this stream are recorded into a graph instead of run.
bool is_capturing(void* stream);

// Returns scratch memory of the given size, aligned to 256 bytes, valid for launches until the next call. Every step on
// stacks of the same shapes asks for the same size.
using Allocate = std::function<void*(size_t bytes)>;

// Takes one step of all the stacks. Returns a cudaError_t.
int spectral_step(const SpectralRule& rule, const StepScalars& scalars, const std::vector<MatrixStack>& stacks,
                  const Allocate& allocate, int device, void* stream);

// The stages of a spectral step of matrices that several processes share, without rescaled updates. Each process measures
// its parts; all agree on the measures of the whole matrices; each process forms the operands of its parts, which travel
// to the owner; the owner shapes whole matrices, and its updates travel back. Return a cudaError_t.
//
// The measures of a matrix or a part: the largest |T| and |D|, and the sums of T² and D². `parts` holds parts of m·n
// elements of B matrices, float32; step counters include this step.
inline constexpr int kSums = 4;
int measure_parts(const SpectralRule& rule, const MatrixStack& parts, double* sums, const Allocate& allocate,
                  void* stream);

// Writes M ← βM + (1−β)G, and T and D of each part in fp16, one after the other; `sums` are those of the whole matrices.
// Without D (null), this step must not need it. If sums are null, T and D are float32, for thin matrices.
int form_operands(const SpectralRule& rule, const MatrixStack& parts, const double* sums, void* T, void* D,
                  const Allocate& allocate, void* stream);

// Shapes whole matrices from operands T and D (B, m, n) and adds the updates, scale·O, to stack.W, float32. Gradients,
// momenta and masters are not used. Without D (null), averaged covariances are not refreshed. Operands of thin matrices
// are float32, and their sums are not read.
int shape_operands(const SpectralRule& rule, const MatrixStack& stack, const double* sums, const void* T, const void* D,
                   const Allocate& allocate, int device, void* stream);

// A parameter with an elementwise rule; state fields in the order of the rule.
struct Vector {
  int64_t size = 0;
  Real gradient = Real::Float32, weight = Real::Float32;
  const void* G = nullptr;
  void* W = nullptr;
  float* master = nullptr;
  float* step = nullptr;
  float* state[3] = {nullptr, nullptr, nullptr};
};

// The rules of prism/optim/{adam,adagrad,rmsprop}.h. Their state: (m, v, largest v), (sum), (v, g, b); null for fields
// that the options do not need.
enum class Elementwise { Adam, AdaGrad, RMSprop };

struct ElementwiseRule {
  Elementwise kind = Elementwise::Adam;
  bool couples_decay = false;   // λW is added to the gradient instead of decaying W
  double beta1 = 0, beta2 = 0;  // Adam's; RMSprop: μ and α
  double eps = 0;
  double lr_decay = 0;  // AdaGrad
};

// Takes one step of all the vectors. Returns a cudaError_t.
int elementwise_step(const ElementwiseRule& rule, const StepScalars& scalars, const std::vector<Vector>& vectors,
                     int device, void* stream);

// The message of a cudaError_t.
const char* error_text(int error);

}  // namespace prism::cuda
