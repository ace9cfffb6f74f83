#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sort.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "prism/model/kernels_cuda.h"
#include "prism/model/ops.h"

namespace prism::model::ops::cuda {
namespace {

using model::cuda::Bfloat16;

model::cuda::Target target_of(const Tensor& x) {
  const auto device = x.device();
  return {device.index(), c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle()};
}

void check(int error) {
  TORCH_CHECK(error == 0, "model: a CUDA kernel could not be launched: ", model::cuda::error_text(error));
}

const float* floats(const Tensor& x) { return x.const_data_ptr<float>(); }
const Bfloat16* bits(const Tensor& x) { return static_cast<const Bfloat16*>(x.const_data_ptr()); }
Bfloat16* mutable_bits(const Tensor& x) { return static_cast<Bfloat16*>(x.mutable_data_ptr()); }

at::TensorOptions low(const Tensor& x) { return x.options().dtype(at::kBFloat16); }

// The kernels read groups of eight.
Tensor aligned(const Tensor& x) {
  bool fits = x.stride(3) == 1 && reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
  for (int64_t dimension = 0; dimension < 3; ++dimension) fits = fits && x.stride(dimension) % 8 == 0;
  return fits ? x : x.contiguous();
}

Tensor sum_of(const Tensor& parts) {
  const Tensor sum = at::empty({parts.size(1)}, parts.options());
  check(model::cuda::sum_rows(target_of(parts), parts.size(0), parts.size(1), floats(parts),
                              sum.mutable_data_ptr<float>()));
  return sum;
}

model::cuda::HeadsView view_of(const Tensor& x) { return {bits(x), x.stride(0), x.stride(1), x.stride(2)}; }

}  // namespace

bool usable(const Tensor& x, at::ScalarType type, bool sizes_fit) {
  return sizes_fit && x.is_cuda() && x.scalar_type() == type && x.numel() > 0 && x.numel() < int64_t{1} << 31 &&
         model::cuda::available(x.device().index());
}

Normed rms_norm(const Tensor& x, const Tensor& y, const Tensor& g, double eps) {
  const Tensor in = x.contiguous(), added = y.defined() ? y.contiguous() : y;
  const Tensor z = y.defined() ? at::empty_like(in) : in;
  const Tensor n = at::empty(x.sizes(), low(x)), r = at::empty({x.size(0)}, x.options());
  check(model::cuda::rms_norm(target_of(x), x.size(0), x.size(1),
                              {.x = floats(in),
                               .y = y.defined() ? bits(added) : nullptr,
                               .g = floats(g),
                               .eps = static_cast<float>(eps),
                               .z = z.mutable_data_ptr<float>(),
                               .n = mutable_bits(n),
                               .r = r.mutable_data_ptr<float>()}));
  return {z, n, r};
}

NormGradient rms_norm_backward(const Tensor& dn, const Tensor& z, const Tensor& r, const Tensor& g, const Tensor& a,
                               bool want_low) {
  const int64_t rows = z.size(0), width = z.size(1);
  const Tensor d = dn.contiguous(), in = z.contiguous(), past = a.defined() ? a.contiguous() : a;
  const Tensor dz = at::empty_like(in), dz_low = want_low ? at::empty(z.sizes(), low(z)) : Tensor();
  const Tensor parts = at::empty({model::cuda::parts_of(rows), width}, z.options());
  check(model::cuda::rms_norm_backward(target_of(z), rows, width,
                                       {.dn = bits(d),
                                        .z = floats(in),
                                        .r = floats(r),
                                        .g = floats(g),
                                        .a = past.defined() ? floats(past) : nullptr,
                                        .dz = dz.mutable_data_ptr<float>(),
                                        .low = want_low ? mutable_bits(dz_low) : nullptr,
                                        .parts = parts.mutable_data_ptr<float>()}));
  return {dz, sum_of(parts), dz_low};
}

void rope_(const Tensor& qkv, int64_t kv_heads, const Tensor& cosine, const Tensor& sine) {
  check(model::cuda::rope(target_of(qkv),
                          {.B = qkv.size(0),
                           .T = qkv.size(1),
                           .heads = qkv.size(2) - 2 * kv_heads,
                           .kv_heads = kv_heads,
                           .head_dim = qkv.size(3),
                           .cosine = floats(cosine),
                           .sine = floats(sine)},
                          mutable_bits(qkv)));
}

std::pair<Tensor, Tensor> rope_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& cosine,
                                        const Tensor& sine) {
  const int64_t B = dq.size(0), H = dq.size(1), T = dq.size(2), D = dq.size(3), K = dk.size(1);
  const Tensor q = aligned(dq), k = aligned(dk), v = aligned(dv);
  const Tensor dqkv = at::empty({B * T, (H + 2 * K) * D}, dq.options());
  const Tensor parts = at::empty({model::cuda::parts_of(B * T), dqkv.size(1)}, cosine.options());
  check(model::cuda::rope_backward(
      target_of(dq),
      {.B = B, .T = T, .heads = H, .kv_heads = K, .head_dim = D, .cosine = floats(cosine), .sine = floats(sine)},
      {.dq = view_of(q), .dk = view_of(k), .dv = view_of(v)}, mutable_bits(dqkv), parts.mutable_data_ptr<float>()));
  return {dqkv, sum_of(parts)};
}

Tensor swiglu(const Tensor& ab) {
  const int64_t mlp = ab.size(1) / 2;
  const Tensor s = at::empty({ab.size(0), mlp}, ab.options());
  check(model::cuda::swiglu(target_of(ab), ab.size(0), mlp, bits(ab), mutable_bits(s)));
  return s;
}

std::pair<Tensor, Tensor> swiglu_backward(const Tensor& ds, const Tensor& ab) {
  const Tensor d = ds.contiguous(), dab = at::empty_like(ab), s = at::empty_like(d);
  check(model::cuda::swiglu_backward(target_of(ab), ab.size(0), ab.size(1) / 2, bits(d), bits(ab), mutable_bits(s),
                                     mutable_bits(dab)));
  return {dab, s};
}

Tensor cross_entropy_(const Tensor& z, const Tensor& targets, bool gradient) {
  const Tensor loss = at::empty({z.size(0)}, z.options().dtype(at::kFloat));
  const auto run = [&](auto* data) {
    check(model::cuda::cross_entropy(target_of(z), z.size(0), z.size(1), data, targets.const_data_ptr<int64_t>(),
                                     loss.mutable_data_ptr<float>(), gradient));
  };
  z.scalar_type() == at::kFloat ? run(z.mutable_data_ptr<float>()) : run(mutable_bits(z));
  return loss;
}

Tensor scaled(const Tensor& x, const Tensor& factor) {
  const Tensor in = x.contiguous(), y = at::empty_like(in);
  if (x.scalar_type() == at::kFloat) {
    check(model::cuda::scale(target_of(x), x.numel(), floats(in), floats(factor), y.mutable_data_ptr<float>()));
  } else {
    check(model::cuda::scale(target_of(x), x.numel(), bits(in), floats(factor), mutable_bits(y)));
  }
  return y;
}

void add_rows_(Tensor& W, const Tensor& ids, const Tensor& x) {
  // A radix sort of 32 bits takes half the passes of one of 64.
  const auto [ordered, order] = at::sort(ids.to(at::kInt), /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const Tensor in = x.contiguous();
  const Tensor parts = at::empty({2, model::cuda::pieces_of(x.size(0)), x.size(1)}, x.options());
  check(model::cuda::add_rows(target_of(x), {.rows = x.size(0),
                                             .width = x.size(1),
                                             .ids = ordered.const_data_ptr<int>(),
                                             .order = order.const_data_ptr<int64_t>(),
                                             .x = floats(in),
                                             .W = W.mutable_data_ptr<float>(),
                                             .first = parts.mutable_data_ptr<float>(),
                                             .last = parts[1].mutable_data_ptr<float>()}));
}

}  // namespace prism::model::ops::cuda
