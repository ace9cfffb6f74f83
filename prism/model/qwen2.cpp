#include "prism/model/qwen2.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>

#include <cmath>

#include "prism/model/parameters.h"

namespace prism::model {
namespace {

// As transformers does it: frequencies and angles rounded to float32.
std::pair<Tensor, Tensor> rope_tables(const ModelConfig& c) {
  const int64_t half = c.head_dim / 2;
  Tensor cosine = at::empty({c.context, half}), sine = at::empty({c.context, half});
  auto* cosines = cosine.data_ptr<float>();
  auto* sines = sine.data_ptr<float>();
  for (int64_t i = 0; i < half; ++i) {
    const auto frequency = static_cast<float>(std::pow(c.rope_theta, -2.0 * i / c.head_dim));
    for (int64_t t = 0; t < c.context; ++t) {
      const float angle = static_cast<float>(t) * frequency;
      cosines[t * half + i] = static_cast<float>(std::cos(static_cast<double>(angle)));
      sines[t * half + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
  return {cosine, sine};
}

Tensor rope(const Tensor& x, const Tensor& cosine, const Tensor& sine) {  // x: (B, T, heads, head_dim)
  const auto halves = x.chunk(2, -1);
  return at::cat({halves[0] * cosine - halves[1] * sine, halves[1] * cosine + halves[0] * sine}, -1);
}

}  // namespace

Qwen2::Qwen2(const ModelConfig& config, uint64_t seed, at::Device device) : config_(config) {
  config_.check();
  compute_dtype_ = device.is_cuda() ? at::kBFloat16 : at::kFloat;
  size_t next = 0;
  for (const auto& parameter : parameter_shapes(config_)) {
    named_.emplace_back(parameter.name, initial_value(parameter, config_, seed).to(device).requires_grad_(true));
  }
  const auto take = [&] { return named_[next++].second; };
  embedding_ = take();
  for (int64_t i = 0; i < config_.layers; ++i) {
    Layer& l = layers_.emplace_back();
    for (Tensor* t :
         {&l.input_norm, &l.Wq, &l.Wk, &l.Wv, &l.bq, &l.bk, &l.bv, &l.Wo, &l.post_norm, &l.Wgate, &l.Wup, &l.Wdown}) {
      *t = take();
    }
  }
  final_norm_ = take();
  head_ = config_.tied ? embedding_ : take();
  std::tie(cosine_, sine_) = rope_tables(config_);
  cosine_ = cosine_.to(device);
  sine_ = sine_.to(device);
}

Tensor Qwen2::attention(const Tensor& x, const Layer& l) const {
  const int64_t B = x.size(0), T = x.size(1), D = config_.head_dim;
  const Tensor cosine = cosine_.narrow(0, 0, T).unsqueeze(1), sine = sine_.narrow(0, 0, T).unsqueeze(1);
  const Tensor q = rope(at::linear(x, l.Wq, l.bq).view({B, T, config_.heads, D}), cosine, sine);
  const Tensor k = rope(at::linear(x, l.Wk, l.bk).view({B, T, config_.kv_heads, D}), cosine, sine);
  const Tensor v = at::linear(x, l.Wv, l.bv).view({B, T, config_.kv_heads, D});
  const Tensor o = at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), {}, 0.0,
                                                    /*is_causal=*/true, {}, /*enable_gqa=*/true);
  return at::linear(o.transpose(1, 2).reshape({B, T, config_.heads * D}), l.Wo);
}

Tensor Qwen2::mlp(const Tensor& x, const Layer& l) const {
  return at::linear(at::silu(at::linear(x, l.Wgate)) * at::linear(x, l.Wup), l.Wdown);
}

Tensor Qwen2::layer(const Tensor& x, const Layer& l) const {
  const Tensor y = x + attention(at::rms_norm(x, {config_.width}, l.input_norm, config_.rms_eps), l);
  return y + mlp(at::rms_norm(y, {config_.width}, l.post_norm, config_.rms_eps), l);
}

Tensor Qwen2::hidden(const Tensor& ids) const {
  Tensor x = at::embedding(embedding_, ids);
  for (const auto& l : layers_) x = layer(x, l);
  return at::rms_norm(x, {config_.width}, final_norm_, config_.rms_eps);
}

Tensor Qwen2::forward(const Tensor& ids) const { return at::linear(hidden(ids), head_); }

Tensor Qwen2::loss(const Tensor& tokens) const {
  const int64_t T = tokens.size(1) - 1;
  const Tensor logits = forward(tokens.narrow(1, 0, T));
  return at::cross_entropy_loss(logits.flatten(0, 1), tokens.narrow(1, 1, T).flatten().to(at::kLong));
}

}  // namespace prism::model
