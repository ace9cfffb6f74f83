#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "prism/model/config.h"

namespace prism::model {

using at::Tensor;

// Keys and values of the tokens a model has seen, so that generation computes each token once. Room for `capacity`
// tokens of `batch` sequences; Qwen2::forward appends to it.
class KvCache {
 public:
  KvCache(const ModelConfig& config, int64_t batch, int64_t capacity, at::TensorOptions options);

  int64_t length() const { return length_; }
  int64_t capacity() const { return keys_.size(2); }

 private:
  friend class Qwen2;
  Tensor keys_, values_;  // (layers, batch, capacity, kv_heads, head_dim)
  int64_t length_ = 0;
};

// The Qwen2 decoder. With x the residual stream (B, T, width), E the embedding, per layer
//   x ← x + Wo · attention(rope(Wq n + bq), rope(Wk n + bk), Wv n + bv),   n = rms_norm(x)
//   x ← x + Wdown (silu(Wgate n) ⊙ Wup n),                                 n = rms_norm(x)
// and logits = H · rms_norm(x), where H is E when tied. Attention is causal; each key-value head serves
// heads / kv_heads query heads. RoPE turns the pair (i, i + head_dim/2) of a head at position t by t ·
// θ^(−2i/head_dim).
//
// Weights are float32. Matrix products run in compute_dtype(): float32 on the CPU, bfloat16 on CUDA, where the residual
// stream, norms, softmax and loss stay in float32.
class Qwen2 {
 public:
  // Checks the configuration. The weights depend on configuration and seed alone, not on threads, device or torch.
  Qwen2(const ModelConfig& config, uint64_t seed, at::Device device = at::kCPU);

  const ModelConfig& config() const { return config_; }

  // Under Hugging Face's names, in a fixed order; the tensors the model computes with, all requiring gradients.
  const std::vector<std::pair<std::string, Tensor>>& named_parameters() const { return named_; }

  // ids: (B, T) of int64 or int32, T ≤ context. Returns the logits (B, T, vocab) in float32.
  Tensor forward(const Tensor& ids) const;

  // The same for the T tokens that follow those in the cache, which grows by T. Makes no gradients.
  Tensor forward(const Tensor& ids, KvCache& cache) const;

  // The mean cross-entropy of tokens[:, 1:] given what precedes each: tokens (B, T+1) → a float32 number. Logits exist
  // for a piece of the tokens at a time; their gradients are computed in the forward pass where gradients are wanted.
  Tensor loss(const Tensor& tokens) const;

  // Whether a layer's activations are kept for the backward pass or computed anew in it (bit-equal gradients).
  void set_recompute(bool recompute) { recompute_ = recompute; }
  bool recompute() const { return recompute_; }

  void set_compute_dtype(at::ScalarType dtype) { compute_dtype_ = dtype; }
  at::ScalarType compute_dtype() const { return compute_dtype_; }
  at::Device device() const { return embedding_.device(); }

 private:
  struct Layer {
    Tensor input_norm, Wq, Wk, Wv, bq, bk, bv, Wo, post_norm, Wgate, Wup, Wdown;
  };

  Tensor layer(const Tensor& x, const Layer& l) const;
  Tensor attention(const Tensor& x, const Layer& l) const;
  Tensor mlp(const Tensor& x, const Layer& l) const;
  Tensor hidden(const Tensor& ids) const;  // rms_norm of the last residual stream

  ModelConfig config_;
  std::vector<std::pair<std::string, Tensor>> named_;
  Tensor embedding_, final_norm_, head_;
  std::vector<Layer> layers_;
  Tensor cosine_, sine_;  // (context, head_dim/2)
  at::ScalarType compute_dtype_ = at::kFloat;
  bool recompute_ = false;
};

}  // namespace prism::model
