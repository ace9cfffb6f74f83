#pragma once

#include <cstdint>

// The elementwise kernels of the model on plain float32 rows. They are compiled for several instruction sets, and one
// is chosen when the program starts. Each function works on rows [begin, end), so callers can divide rows among
// threads.
namespace prism::model::kernels {

struct Rows {
  int64_t begin, end;
};

// z = x + y, r = 1/√(mean(z²) + ε), n = z · r ⊙ g. x, y, z, n: (rows, width); r: (rows); g: (width). If y is null, z is
// x and is not written.
void rms_norm(Rows rows, int64_t width, const float* x, const float* y, const float* g, double eps, float* z, float* n,
              float* r);

// dz = a + r · (dn ⊙ g) − z · r³/width · Σ(dn ⊙ g ⊙ z), where a (rows, width) may be null, and dg += Σ_rows dn ⊙ z · r.
void rms_norm_backward(Rows rows, int64_t width, const float* dn, const float* z, const float* r, const float* g,
                       const float* a, float* dz, float* dg);

// Rotates the pair (i, i + head_dim/2) of each head by the angle of the row's position: x, y (rows, heads, head_dim)
// with row strides x_stride and y_stride; cosine, sine (positions, head_dim/2). The position of a row is row mod
// length. sign −1 rotates back. x may be y.
struct Rope {
  int64_t length, heads, head_dim;
  const float *cosine, *sine;
  float sign;
};
void rope(Rows rows, const Rope& rope, const float* x, int64_t x_stride, float* y, int64_t y_stride);

// s = silu(a) ⊙ b for each row [a b] of ab (rows, 2 · mlp); s: (rows, mlp).
void swiglu(Rows rows, int64_t mlp, const float* ab, float* s);

// Computes the same s, and dab (rows, 2 · mlp) from ds (rows, mlp). s may overwrite ds.
void swiglu_backward(Rows rows, int64_t mlp, const float* ds, const float* ab, float* s, float* dab);

// loss[row] = log Σ exp(z) − z[target]; with `gradient`, z becomes softmax(z) − onehot(target). z: (rows, vocab).
void cross_entropy(Rows rows, int64_t vocab, float* z, const int64_t* targets, float* loss, bool gradient);

// W[ids[row], columns] += x[row, columns] for all `count` rows of x (count, width), columns [begin, end).
void add_rows(Rows columns, int64_t count, int64_t width, const int64_t* ids, const float* x, float* W);

}  // namespace prism::model::kernels
