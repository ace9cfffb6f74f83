#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_rms_norm.h>
#include <ATen/ops/_fused_rms_norm_backward.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include "prism/model/ops.h"

namespace prism::model::ops::plain {
namespace {

// y ← x rotated, or rotated back if sign is −1; both (B, T, heads, head_dim). x must not be y.
void turn(const Tensor& x, const Tensor& y, const Tensor& cosine, const Tensor& sine, double sign) {
  const int64_t half = x.size(3) / 2;
  const Tensor c = cosine.unsqueeze(1), s = sine.unsqueeze(1);
  const Tensor a = x.narrow(3, 0, half), b = x.narrow(3, half, half);
  y.narrow(3, 0, half).copy_((a * c).addcmul_(b, s, -sign));
  y.narrow(3, half, half).copy_((b * c).addcmul_(a, s, sign));
}

}  // namespace

Normed rms_norm(const Tensor& x, const Tensor& y, const Tensor& g, double eps, at::ScalarType type) {
  const Tensor z = y.defined() ? x + y : x;
  if (z.is_cuda()) {
    auto [n, r] = at::_fused_rms_norm(z, {z.size(1)}, g, eps);
    return {z, n.to(type), r};
  }
  const Tensor r = (z.square().mean(1) + eps).rsqrt();
  return {z, (z * r.unsqueeze(1) * g).to(type), r};
}

NormGradient rms_norm_backward(const Tensor& dn, const Tensor& z, const Tensor& r, const Tensor& g, const Tensor& a,
                               bool want_low) {
  Tensor dz, dg;
  if (z.is_cuda()) {
    std::tie(dz, dg) = at::_fused_rms_norm_backward(dn.to(z.scalar_type()), z, {z.size(1)}, r, g, {true, true});
  } else {
    const Tensor d = dn.to(z.scalar_type()), ri = r.unsqueeze(1);
    dz = d * g * ri - z * ri.pow(3) * (d * g * z).mean(1, /*keepdim=*/true);
    dg = (d * z * ri).sum(0);
  }
  if (a.defined()) dz.add_(a);
  return {dz, dg, want_low ? dz.to(dn.scalar_type()) : Tensor()};
}

void rope_(const Tensor& qkv, int64_t kv_heads, const Tensor& cosine, const Tensor& sine) {
  const Tensor turned = qkv.narrow(2, 0, qkv.size(2) - kv_heads);
  turn(turned.clone(), turned, cosine, sine, 1);
}

std::pair<Tensor, Tensor> rope_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& cosine,
                                        const Tensor& sine) {
  const int64_t B = dq.size(0), H = dq.size(1), T = dq.size(2), D = dq.size(3), K = dk.size(1);
  const Tensor out = at::empty({B, T, H + 2 * K, D}, dq.options());
  turn(dq.transpose(1, 2), out.narrow(2, 0, H), cosine, sine, -1);
  turn(dk.transpose(1, 2), out.narrow(2, H, K), cosine, sine, -1);
  out.narrow(2, H + K, K).copy_(dv.transpose(1, 2));
  const Tensor dqkv = out.view({B * T, (H + 2 * K) * D});
  return {dqkv, dqkv.sum(0, /*keepdim=*/false, at::toOpMathType(dqkv.scalar_type()))};
}

Tensor swiglu(const Tensor& ab) {
  const int64_t mlp = ab.size(1) / 2;
  return at::silu(ab.narrow(1, 0, mlp)).mul_(ab.narrow(1, mlp, mlp));
}

std::pair<Tensor, Tensor> swiglu_backward(const Tensor& ds, const Tensor& ab) {
  const int64_t mlp = ab.size(1) / 2;
  const Tensor a = ab.narrow(1, 0, mlp), b = ab.narrow(1, mlp, mlp), silu = at::silu(a);
  Tensor dab = at::empty_like(ab);
  dab.narrow(1, 0, mlp).copy_(at::silu_backward(ds * b, a));
  Tensor db = dab.narrow(1, mlp, mlp);
  at::mul_out(db, ds, silu);
  return {dab, silu * b};
}

Tensor cross_entropy_(const Tensor& z, const Tensor& targets, bool gradient) {
  const Tensor column = targets.unsqueeze(1);
  const Tensor log_p = at::_log_softmax(z.to(at::toOpMathType(z.scalar_type())), 1, /*half_to_float=*/false);
  if (gradient) {
    const Tensor p = log_p.exp();
    z.copy_(p.scatter_(1, column, p.gather(1, column) - 1));
  }
  return log_p.gather(1, column).squeeze(1).neg_();
}

void add_rows_(Tensor& W, const Tensor& ids, const Tensor& x) {
  // Deterministic on CUDA too, unlike index_add_.
  W.add_(at::embedding_dense_backward(x.to(W.scalar_type()), ids, W.size(0), /*padding_idx=*/-1, false));
}

Tensor scaled(const Tensor& x, const Tensor& factor) { return x * factor; }

}  // namespace prism::model::ops::plain
