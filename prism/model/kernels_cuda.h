#pragma once

#include <cstdint>

// The elementwise kernels of the model in CUDA, on plain pointers: matrices in bfloat16 (as uint16_t bits here), the
// residual stream, norms and sums in float32. Every function launches one kernel, unless it says more, on the stream and returns CUDA's
// error, 0 for success. All sums have a fixed order. A build without CUDA links kernels_cuda_stub.cpp, in which
// `available` returns false. Formulas and names are those of kernels_cpu.h.
namespace prism::model::cuda {

using Bfloat16 = uint16_t;

struct Target {
  int device;
  void* stream;
};

// Returns true if these kernels were built and run on the device.
bool available(int device);
const char* error_text(int error);

// The kernels support widths 128 · {1 … 8, 10, 12, 16}, mlp and vocabulary in multiples of 8, and head_dim in multiples
// of 8 (16 for the gradient).
bool supports_width(int64_t width);

// If y is null, z is x and is not written.
struct Norm {
  const float* x;
  const Bfloat16* y;
  const float* g;
  float eps;
  float* z;
  Bfloat16* n;
  float* r;
};
int rms_norm(Target target, int64_t rows, int64_t width, const Norm& arguments);

// The number of parts in which sums over rows are computed, one for each block.
int64_t parts_of(int64_t rows);

// The rows of `parts` (parts_of(rows), width) add up to dg. a and low, the rounded dz, may be null.
struct NormBackward {
  const Bfloat16* dn;
  const float *z, *r, *g, *a;
  float* dz;
  Bfloat16* low;
  float* parts;
};
int rms_norm_backward(Target target, int64_t rows, int64_t width, const NormBackward& arguments);

// qkv: (B · T, heads + 2 · kv_heads, head_dim); the first heads + kv_heads are rotated in place.
struct Heads {
  int64_t B, T, heads, kv_heads, head_dim;
  const float *cosine, *sine;
};
int rope(Target target, const Heads& heads, Bfloat16* qkv);

// A tensor (B, heads, T, head_dim) whose last dimension is contiguous, with every group of eight aligned to 16 bytes.
struct HeadsView {
  const Bfloat16* data;
  int64_t batch_stride, head_stride, token_stride;
};
struct HeadGradients {
  HeadsView dq, dk, dv;
};

// The rows of `parts` (parts_of(B · T), columns of dqkv) add up to the sums of the columns of dqkv.
int rope_backward(Target target, const Heads& heads, const HeadGradients& from, Bfloat16* dqkv, float* parts);

// sums[j] = Σ_i parts[i, j]. parts: (rows, columns).
int sum_rows(Target target, int64_t rows, int64_t columns, const float* parts, float* sums);

int swiglu(Target target, int64_t rows, int64_t mlp, const Bfloat16* ab, Bfloat16* s);
int swiglu_backward(Target target, int64_t rows, int64_t mlp, const Bfloat16* ds, const Bfloat16* ab, Bfloat16* s,
                    Bfloat16* dab);

// z: (rows, vocab) logits; with `gradient`, they become softmax(z) − onehot(target).
int cross_entropy(Target target, int64_t rows, int64_t vocab, Bfloat16* z, const int64_t* targets, float* loss,
                  bool gradient);
int cross_entropy(Target target, int64_t rows, int64_t vocab, float* z, const int64_t* targets, float* loss,
                  bool gradient);

// y[i] = x[i] · factor[0]. count: a multiple of 8.
int scale(Target target, int64_t count, const Bfloat16* x, const float* factor, Bfloat16* y);
int scale(Target target, int64_t count, const float* x, const float* factor, float* y);

// W[ids[i]] += x[order[i]] for rows of x that are ordered by their ids. W: (…, width), width a multiple of 4. first and
// last (pieces_of(rows), width) are scratch. Launches two kernels. ids must be rows of W.
struct AddRows {
  int64_t rows, width;
  const int* ids;
  const int64_t* order;
  const float* x;
  float *W, *first, *last;
};
int64_t pieces_of(int64_t rows);
int add_rows(Target target, const AddRows& arguments);

}  // namespace prism::model::cuda
