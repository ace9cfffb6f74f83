#include "prism/model/ops.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "prism/model/kernels_cpu.h"
#include "prism/model/kernels_cuda.h"

namespace prism::model::ops {
namespace {

using kernels::Rows;

bool on_cpu(const Tensor& x) { return x.is_cpu() && x.scalar_type() == at::kFloat; }

// Divides rows among threads; each thread gets at least 2¹⁴ elements.
template <class Function>
void for_rows(int64_t rows, int64_t row_elements, const Function& function) {
  at::parallel_for(0, rows, std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(1, row_elements)),
                   [&](int64_t begin, int64_t end) {
                     function(Rows{begin, end});
                   });
}

kernels::Rope rope_of(const Tensor& cosine, const Tensor& sine, int64_t heads, float sign) {
  return {
      cosine.size(0), heads, 2 * cosine.size(1), cosine.const_data_ptr<float>(), sine.const_data_ptr<float>(), sign};
}

// x: (B, heads, T, head_dim) in the memory order (B, T, heads, head_dim).
Tensor token_rows(const Tensor& x) { return x.transpose(1, 2).contiguous(); }

}  // namespace

Normed rms_norm(const Tensor& x, const Tensor& y, const Tensor& g, double eps, at::ScalarType type) {
  if (cuda::usable(x, at::kFloat, type == at::kBFloat16 && model::cuda::supports_width(x.size(1)))) {
    return cuda::rms_norm(x, y, g, eps);
  }
  if (!on_cpu(x)) return plain::rms_norm(x, y, g, eps, type);
  const int64_t width = x.size(1);
  const Tensor in = x.contiguous(), added = y.defined() ? y.contiguous() : y;
  Tensor z = y.defined() ? at::empty_like(in) : in, n = at::empty_like(in), r = at::empty({x.size(0)}, x.options());
  for_rows(x.size(0), width, [&](Rows rows) {
    kernels::rms_norm(rows, width, in.const_data_ptr<float>(), y.defined() ? added.const_data_ptr<float>() : nullptr,
                      g.const_data_ptr<float>(), eps, z.data_ptr<float>(), n.data_ptr<float>(), r.data_ptr<float>());
  });
  return {z, n, r};
}

NormGradient rms_norm_backward(const Tensor& dn, const Tensor& z, const Tensor& r, const Tensor& g, const Tensor& a,
                               bool want_low) {
  if (cuda::usable(dn, at::kBFloat16, model::cuda::supports_width(z.size(1)))) {
    return cuda::rms_norm_backward(dn, z, r, g, a, want_low);
  }
  if (!on_cpu(z)) return plain::rms_norm_backward(dn, z, r, g, a, want_low);
  constexpr int64_t kBlock = 64;  // rows summed into one part of dg; fixed, so that dg does not depend on the threads
  const int64_t count = z.size(0), width = z.size(1), blocks = (count + kBlock - 1) / kBlock;
  const Tensor d = dn.contiguous(), in = z.contiguous(), past = a.defined() ? a.contiguous() : a;
  Tensor dz = at::empty_like(in), parts = at::zeros({blocks, width}, z.options());
  for_rows(blocks, kBlock * width, [&](Rows part) {
    for (int64_t i = part.begin; i < part.end; ++i) {
      kernels::rms_norm_backward({i * kBlock, std::min(count, (i + 1) * kBlock)}, width, d.const_data_ptr<float>(),
                                 in.const_data_ptr<float>(), r.const_data_ptr<float>(), g.const_data_ptr<float>(),
                                 past.defined() ? past.const_data_ptr<float>() : nullptr, dz.data_ptr<float>(),
                                 parts.data_ptr<float>() + i * width);
    }
  });
  return {dz, parts.sum(0), dz};
}

void rope_(const Tensor& qkv, int64_t kv_heads, const Tensor& cosine, const Tensor& sine) {
  if (cuda::usable(qkv, at::kBFloat16, qkv.size(3) % 8 == 0)) return cuda::rope_(qkv, kv_heads, cosine, sine);
  if (!on_cpu(qkv)) return plain::rope_(qkv, kv_heads, cosine, sine);
  const int64_t stride = qkv.stride(1);
  const kernels::Rope rope = rope_of(cosine, sine, qkv.size(2) - kv_heads, 1);
  auto* data = qkv.data_ptr<float>();
  for_rows(qkv.size(0) * qkv.size(1), stride,
           [&](Rows rows) { kernels::rope(rows, rope, data, stride, data, stride); });
}

std::pair<Tensor, Tensor> rope_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& cosine,
                                        const Tensor& sine) {
  if (cuda::usable(dq, at::kBFloat16, dq.size(3) % 16 == 0)) return cuda::rope_backward(dq, dk, dv, cosine, sine);
  if (!on_cpu(dq)) return plain::rope_backward(dq, dk, dv, cosine, sine);
  const int64_t B = dq.size(0), H = dq.size(1), T = dq.size(2), D = dq.size(3), K = dk.size(1);
  const int64_t stride = (H + 2 * K) * D;
  const Tensor q = token_rows(dq), k = token_rows(dk);
  Tensor out = at::empty({B * T, stride}, dq.options());
  auto* data = out.data_ptr<float>();
  out.view({B, T, H + 2 * K, D}).narrow(2, H + K, K).copy_(dv.transpose(1, 2));
  const kernels::Rope of_q = rope_of(cosine, sine, H, -1), of_k = rope_of(cosine, sine, K, -1);
  for_rows(B * T, stride, [&](Rows rows) {
    kernels::rope(rows, of_q, q.const_data_ptr<float>(), H * D, data, stride);
    kernels::rope(rows, of_k, k.const_data_ptr<float>(), K * D, data + H * D, stride);
  });
  return {out, out.sum(0)};
}

Tensor swiglu(const Tensor& ab) {
  if (cuda::usable(ab, at::kBFloat16, ab.size(1) % 16 == 0)) return cuda::swiglu(ab);
  if (!on_cpu(ab)) return plain::swiglu(ab);
  const int64_t mlp = ab.size(1) / 2;
  Tensor s = at::empty({ab.size(0), mlp}, ab.options());
  for_rows(ab.size(0), 2 * mlp,
           [&](Rows rows) { kernels::swiglu(rows, mlp, ab.const_data_ptr<float>(), s.data_ptr<float>()); });
  return s;
}

std::pair<Tensor, Tensor> swiglu_backward(const Tensor& ds, const Tensor& ab) {
  if (cuda::usable(ab, at::kBFloat16, ab.size(1) % 16 == 0)) return cuda::swiglu_backward(ds, ab);
  if (!on_cpu(ab)) return plain::swiglu_backward(ds, ab);
  const int64_t mlp = ab.size(1) / 2;
  Tensor dab = at::empty_like(ab), s = at::empty_like(ds);
  for_rows(ab.size(0), 2 * mlp, [&](Rows rows) {
    kernels::swiglu_backward(rows, mlp, ds.const_data_ptr<float>(), ab.const_data_ptr<float>(), s.data_ptr<float>(),
                             dab.data_ptr<float>());
  });
  return {dab, s};
}

Tensor cross_entropy_(const Tensor& z, const Tensor& targets, bool gradient) {
  const bool sizes_fit = z.size(1) % 8 == 0;
  if (cuda::usable(z, at::kBFloat16, sizes_fit) || cuda::usable(z, at::kFloat, sizes_fit)) {
    return cuda::cross_entropy_(z, targets, gradient);
  }
  if (!on_cpu(z)) return plain::cross_entropy_(z, targets, gradient);
  const int64_t vocab = z.size(1);
  Tensor loss = at::empty({z.size(0)}, z.options());
  for_rows(z.size(0), vocab, [&](Rows rows) {
    kernels::cross_entropy(rows, vocab, z.data_ptr<float>(), targets.const_data_ptr<int64_t>(), loss.data_ptr<float>(),
                           gradient);
  });
  return loss;
}

void add_rows_(Tensor& W, const Tensor& ids, const Tensor& x) {
  const bool sizes_fit = W.size(1) % 4 == 0 && W.is_contiguous() && x.scalar_type() == at::kFloat;
  if (cuda::usable(W, at::kFloat, sizes_fit)) return cuda::add_rows_(W, ids, x);
  if (!on_cpu(W)) return plain::add_rows_(W, ids, x);
  const int64_t count = x.size(0), width = x.size(1);
  const Tensor in = x.contiguous();
  for_rows(width, count, [&](Rows columns) {
    kernels::add_rows(columns, count, width, ids.const_data_ptr<int64_t>(), in.const_data_ptr<float>(),
                      W.data_ptr<float>());
  });
}

Tensor scaled(const Tensor& x, const Tensor& factor) {
  const bool fits = x.numel() % 8 == 0 && factor.numel() == 1 && factor.scalar_type() == at::kFloat;
  if (cuda::usable(x, at::kBFloat16, fits) || cuda::usable(x, at::kFloat, fits)) return cuda::scaled(x, factor);
  return plain::scaled(x, factor);
}

}  // namespace prism::model::ops
