#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

// The parts of the decoder between matrix products, forward and backward, without autograd. On the CPU they are fused
// kernels for float32 (kernels_cpu.h), on CUDA for bfloat16 products (kernels_cuda.h); namespace `plain` has the same
// in ATen's operators, for any device and type: the specification, and what is left. Rows are tokens; a type argument
// is that of the matrix products.
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

// The gradients of the above. a (rows, width) is the gradient that goes past the norm, which is added to dz; it may be
// undefined. `low` is made where it is wanted.
NormGradient rms_norm_backward(const Tensor& dn, const Tensor& z, const Tensor& r, const Tensor& g, const Tensor& a,
                               bool want_low);

// Turns the query and key heads of qkv (B, T, heads + 2 · kv_heads, head_dim) in place: of each head, the pair
// (i, i + head_dim/2) at position t by the angle whose cosine and sine are in row t of the tables (T, head_dim/2).
void rope_(const Tensor& qkv, int64_t kv_heads, const Tensor& cosine, const Tensor& sine);

// (dqkv, db): the gradient of the products behind qkv, (B · T, (heads + 2 · kv_heads) · head_dim), which is dq and dk
// turned back, and dv; and its sum over the rows, at least in float32, that of the bias. dq: (B, heads, T, head_dim),
// dk and dv: (B, kv_heads, T, head_dim).
std::pair<Tensor, Tensor> rope_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& cosine,
                                        const Tensor& sine);

// s = silu(a) ⊙ b, where ab (rows, 2 · mlp) is [a b].
Tensor swiglu(const Tensor& ab);

// (dab, s): the gradient, and the forward result once more, which comes for free.
std::pair<Tensor, Tensor> swiglu_backward(const Tensor& ds, const Tensor& ab);

// The cross-entropy of each row of logits z (rows, vocab) with its target, at least in float32. With `gradient`, z
// becomes softmax(z) − onehot(target).
Tensor cross_entropy_(const Tensor& z, const Tensor& targets, bool gradient);

// W[ids[i]] += x[i], in the order of i on the CPU. W: (vocab, width) float32, ids: int64 (rows), x: (rows, width).
void add_rows_(Tensor& W, const Tensor& ids, const Tensor& x);

// The same set twice more. `plain` has add_rows_ too; on CUDA that is the only one.
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
}  // namespace plain

namespace cuda {
// Whether x is on a GPU that the kernels are for, of this type; what else each of them asks for is in kernels_cuda.h.
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
}  // namespace cuda

}  // namespace prism::model::ops
