#include "prism/model/layer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "prism/model/ops.h"
#include "prism/model/products.h"

namespace prism::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

Tensor rows(const Tensor& x) { return x.defined() ? x.reshape({-1, x.size(-1)}) : x; }

struct AttentionInput : Function<AttentionInput> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const std::optional<Tensor>& y_or_none,
                               at::TensorList /*parameters*/, const Layer& l, const Rotation& rotation,
                               const Numerics& numerics) {
    const Tensor y = y_or_none.value_or(Tensor());
    const int64_t B = x.size(0), T = x.size(1), D = 2 * rotation.cosine.size(1);
    const int64_t H = l.bq.size(0) / D, K = l.bk.size(0) / D;
    const Tensor W = l.Wqkv.to(numerics.type);
    const auto [z_rows, n, r] = ops::rms_norm(rows(x), rows(y), l.input_norm, numerics.eps, numerics.type);
    const Tensor z = y.defined() ? z_rows.view_as(x) : x;
    numerics.observe("residual_stream", z);
    numerics.observe("input_layernorm", n);
    const Tensor qkv = product(n, W, l.bqkv.to(numerics.type)).view({B, T, H + 2 * K, D});
    numerics.observe("self_attn.q_proj", qkv.narrow(2, 0, H));
    numerics.observe("self_attn.k_proj", qkv.narrow(2, H, K));
    numerics.observe("self_attn.v_proj", qkv.narrow(2, H + K, K));
    ops::rope_(qkv, K, rotation.cosine, rotation.sine);
    numerics.observe("self_attn.rotary_emb", qkv);
    ctx->saved_data["has_y"] = y.defined();
    ctx->save_for_backward({z, n, r, l.input_norm, W, rotation.cosine, rotation.sine});
    const auto heads = [&](int64_t first, int64_t count) { return qkv.narrow(2, first, count).transpose(1, 2); };
    return {heads(0, H), heads(H, K), heads(H + K, K), z};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const auto &z = saved[0], &n = saved[1], &r = saved[2], &g = saved[3], &W = saved[4];
    const auto &dq = gradients[0], &dk = gradients[1], &dv = gradients[2], &dz_past = gradients[3];
    const auto [dqkv, db] = ops::rope_backward(dq, dk, dv, saved[5], saved[6]);
    const Tensor dW = weight_gradient(dqkv, n);
    const bool has_y = ctx->saved_data["has_y"].toBool();
    const auto [dz, dg, dy] = ops::rms_norm_backward(input_gradient(dqkv, W), rows(z), r, g, rows(dz_past), has_y);
    const int64_t q = dq.size(1) * dq.size(3), k = dk.size(1) * dk.size(3);
    return {dz.view_as(z),
            has_y ? dy.view_as(z) : Tensor(),
            dg,
            dW.narrow(0, 0, q),
            dW.narrow(0, q, k),
            dW.narrow(0, q + k, k),
            db.narrow(0, 0, q),
            db.narrow(0, q, k),
            db.narrow(0, q + k, k),
            Tensor(),
            Tensor(),
            Tensor()};
  }
};

struct AttentionOutputAndMlp : Function<AttentionOutputAndMlp> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& o, at::TensorList /*parameters*/,
                               const Layer& l, const Numerics& numerics) {
    const Tensor Wo = l.Wo.to(numerics.type), Wgu = l.Wgu.to(numerics.type), Wdown = l.Wdown.to(numerics.type);
    const Tensor o_rows = o.transpose(1, 2).reshape({x.size(0) * x.size(1), Wo.size(1)});
    const Tensor attended = product(o_rows, Wo);
    numerics.observe("self_attn.o_proj", attended);
    const auto [z, n, r] = ops::rms_norm(rows(x), attended, l.post_norm, numerics.eps, numerics.type);
    numerics.observe("residual_stream", z);
    numerics.observe("post_attention_layernorm", n);
    const Tensor gu = product(n, Wgu);
    const int64_t mlp = Wdown.size(1);
    numerics.observe("mlp.gate_proj", gu.narrow(1, 0, mlp));
    numerics.observe("mlp.up_proj", gu.narrow(1, mlp, mlp));
    ctx->save_for_backward({o, z, n, r, gu, l.post_norm, Wo, Wgu, Wdown});
    const Tensor s = ops::swiglu(gu), y = product(s, Wdown);
    numerics.observe("mlp.act_fn", s);
    numerics.observe("mlp.down_proj", y);
    return {z.view_as(x), y.view_as(x)};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const auto &o = saved[0], &z = saved[1], &n = saved[2], &r = saved[3], &gu = saved[4], &g = saved[5];
    const auto &Wo = saved[6], &Wgu = saved[7], &Wdown = saved[8];
    const Tensor dz_past = rows(gradients[0]), dy = rows(gradients[1]);
    const auto [dgu, s] = ops::swiglu_backward(input_gradient(dy, Wdown), gu);
    const auto [dz, dg, dz_low] = ops::rms_norm_backward(input_gradient(dgu, Wgu), z, r, g, dz_past, /*want_low=*/true);
    const Tensor o_rows = o.transpose(1, 2).reshape({z.size(0), Wo.size(1)});
    const Tensor dWgu = weight_gradient(dgu, n);
    const Tensor d_o = input_gradient(dz_low, Wo).view(o.transpose(1, 2).sizes()).transpose(1, 2);
    const int64_t mlp = Wdown.size(1);
    return {dz.view_as(gradients[0]),
            d_o,
            weight_gradient(dz_low, o_rows),
            dg,
            dWgu.narrow(0, 0, mlp),
            dWgu.narrow(0, mlp, mlp),
            weight_gradient(dy, s),
            Tensor(),
            Tensor()};
  }
};

}  // namespace

std::tuple<Tensor, Tensor, Tensor, Tensor> attention_input(const Stream& stream, const Layer& l,
                                                           const Rotation& rotation, const Numerics& numerics) {
  const Tensor parameters[] = {l.input_norm, l.Wq, l.Wk, l.Wv, l.bq, l.bk, l.bv};
  // Autograd does not accept an undefined tensor as input, but it accepts an empty optional.
  const auto out =
      AttentionInput::apply(stream.x, std::optional(stream.y), at::TensorList(parameters), l, rotation, numerics);
  return {out[0], out[1], out[2], out[3]};
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  const int64_t T = q.size(2), L = k.size(2);
  std::optional<Tensor> mask;
  if (T > 1 && T < L) mask = at::ones({T, L}, q.options().dtype(at::kBool)).tril_(L - T);
  return at::scaled_dot_product_attention(q, k, v, mask, /*dropout_p=*/0.0, /*is_causal=*/T == L, /*scale=*/{},
                                          /*enable_gqa=*/q.size(1) != k.size(1));
}

Stream attention_output_and_mlp(const Tensor& x, const Tensor& o, const Layer& l, const Numerics& numerics) {
  const Tensor parameters[] = {l.Wo, l.post_norm, l.Wgate, l.Wup, l.Wdown};
  const auto out = AttentionOutputAndMlp::apply(x, o, at::TensorList(parameters), l, numerics);
  return {out[0], out[1]};
}

Stream layer_forward(const Stream& stream, const Layer& layer, const Rotation& rotation, const Numerics& numerics) {
  const auto [q, k, v, x] = attention_input(stream, layer, rotation, numerics);
  const Tensor o = attention(q, k, v);
  numerics.observe("self_attn", o);
  return attention_output_and_mlp(x, o, layer, numerics);
}

}  // namespace prism::model
