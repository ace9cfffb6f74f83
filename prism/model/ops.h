#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

// The parts of the decoder between matrix products, forward and backward, without autograd. There are fused kernels for
// float32 on the CPU (kernels_cpu.h) and for bfloat16 products on CUDA (kernels_cuda.h). Namespace `plain` has the same
// in ATen's operators for any device and type: the specification, and the fallback. Rows are tokens; a type argument is
// the type of the matrix products.
namespace prism::model::ops {

using at::Tensor;

// z = x + y and n = z · r ⊙ g with r = 1/√(mean(z²) + ε). x: (rows, width) float32, y: the same shape in `type`, or
// undefined for z = x, g: (width). n is in `type`, z and r in float32.
struct Normed {
  Tensor z, n, r;
};
Normed rms_norm(const Tensor& x, const Tensor& y, const Tensor& g, double eps, at::ScalarType type);

struct NormGradient {
  Tensor dz, dg;
  Tensor low;  // dz in the type of dn: the gradient of y
};

// The gradients of the above. a (rows, width), the gradient that bypasses the norm, is added to dz; it may be
// undefined. `low` is computed only on request.
NormGradient rms_norm_backward(const Tensor& dn, const Tensor& z, const Tensor& r, const Tensor& g, const Tensor& a,
                               bool want_low);

// Rotates the query and key heads of qkv (B, T, heads + 2 · kv_heads, head_dim) in place: the pair (i, i + head_dim/2)
// of each head at position t, by the angle whose cosine and sine are in row t of the tables (T, head_dim/2).
void rope_(const Tensor& qkv, int64_t kv_heads, const Tensor& cosine, const Tensor& sine);

// Returns (dqkv, db). dqkv (B · T, (heads + 2 · kv_heads) · head_dim) is the gradient of the products that gave qkv: dq
// and dk rotated back, and dv. db is its sum over the rows, at least in float32: the gradient of the bias.
// dq: (B, heads, T, head_dim), dk and dv: (B, kv_heads, T, head_dim).
std::pair<Tensor, Tensor> rope_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& cosine,
                                        const Tensor& sine);

// s = silu(a) ⊙ b, where ab (rows, 2 · mlp) is [a b].
Tensor swiglu(const Tensor& ab);

// Returns (dab, s): the gradient, and the forward result again, which costs nothing extra.
std::pair<Tensor, Tensor> swiglu_backward(const Tensor& ds, const Tensor& ab);

// The cross-entropy of each row of logits z (rows, vocab) with its target, at least in float32. With `gradient`, z
// becomes softmax(z) − onehot(target).
Tensor cross_entropy_(const Tensor& z, const Tensor& targets, bool gradient);

// W[ids[i]] += x[i], in a fixed order. W: (vocab, width) float32, ids: int64 (rows), x: (rows, width).
void add_rows_(Tensor& W, const Tensor& ids, const Tensor& x);

// x · factor; factor is a float32 scalar on the device of x.
Tensor scaled(const Tensor& x, const Tensor& factor);

// The same functions twice more.
namespace plain {
Normed rms_norm(const Tensor& x, const Tensor& y, const Tensor& g, double eps, at::ScalarType type);
NormGradient rms_norm_backward(const Tensor& dn, const Tensor& z, const Tensor& r, const Tensor& g, const Tensor& a,
                               bool want_low);
void rope_(const Tensor& qkv, int64_t kv_heads, const Tensor& cosine, const Tensor& sine);
std::pair<Tensor, Tensor> rope_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& cosine,
                                        const Tensor& sine);
Tensor swiglu(const Tensor& ab);
std::pair<Tensor, Tensor> swiglu_backward(const Tensor& ds, const Tensor& ab);
Tensor cross_entropy_(const Tensor& z, const Tensor& targets, bool gradient);
void add_rows_(Tensor& W, const Tensor& ids, const Tensor& x);
Tensor scaled(const Tensor& x, const Tensor& factor);
}  // namespace plain

namespace cuda {
// Returns true if x has this type and is on a GPU that the kernels support; kernels_cuda.h lists their other
// conditions.
bool usable(const Tensor& x, at::ScalarType type, bool sizes_fit);

Normed rms_norm(const Tensor& x, const Tensor& y, const Tensor& g, double eps);
NormGradient rms_norm_backward(const Tensor& dn, const Tensor& z, const Tensor& r, const Tensor& g, const Tensor& a,
                               bool want_low);
void rope_(const Tensor& qkv, int64_t kv_heads, const Tensor& cosine, const Tensor& sine);
std::pair<Tensor, Tensor> rope_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& cosine,
                                        const Tensor& sine);
Tensor swiglu(const Tensor& ab);
std::pair<Tensor, Tensor> swiglu_backward(const Tensor& ds, const Tensor& ab);
Tensor cross_entropy_(const Tensor& z, const Tensor& targets, bool gradient);
void add_rows_(Tensor& W, const Tensor& ids, const Tensor& x);
Tensor scaled(const Tensor& x, const Tensor& factor);
}  // namespace cuda

}  // namespace prism::model::ops
