#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "prism/model/config.h"
#include "prism/model/layer.h"

namespace prism::model {

using at::Tensor;

class Qwen2;
struct ParameterShape;

// Keys and values of the tokens that a model has seen, so that generation computes each token once. It has room for
// `capacity` tokens of `batch` sequences; Qwen2::forward appends to it.
class KvCache {
 public:
  KvCache(const Qwen2& model, int64_t batch, int64_t capacity);

  int64_t length() const { return length_; }
  void clear() { length_ = 0; }
  int64_t capacity() const { return keys_.size(3); }

 private:
  friend class Qwen2;
  void check(const Tensor& ids) const;
  Tensor keys_, values_;  // (layers, batch, kv_heads, capacity, head_dim)
  int64_t length_ = 0;
};

// The Qwen2 decoder. With x the residual stream (B, T, width), E the embedding, per layer
//   x ← x + Wo · attention(rope(Wq n + bq), rope(Wk n + bk), Wv n + bv),   n = rms_norm(x)
//   x ← x + Wdown (silu(Wgate n) ⊙ Wup n),                                 n = rms_norm(x)
// and logits = H · rms_norm(x), where H is E if tied. Attention is causal; each key-value head serves heads / kv_heads
// query heads. RoPE rotates the pair (i, i + head_dim/2) of a head at position t by the angle t · θ^(−2i/head_dim).
//
// Weights are float32. Matrix products run in compute_dtype(): float32 on the CPU, bfloat16 on CUDA, where the residual
// stream and the sums inside norms, softmax and loss stay in float32. Logits are bfloat16 if gradients are computed,
// float32 if only the loss is.
class Qwen2 {
 public:
  // Checks the configuration. The weights depend only on configuration, seed and scale, not on threads, device or
  // torch.
  Qwen2(const ModelConfig& config, uint64_t seed, at::Device device = at::kCPU, InitScale scale = InitScale::Qwen2);

  // Creates a model whose weights have no values yet, for assign_weights.
  static Qwen2 without_weights(const ModelConfig& config, at::Device device = at::kCPU);

  Qwen2(Qwen2&&) = default;
  Qwen2& operator=(Qwen2&&) = default;

  const ModelConfig& config() const { return config_; }

  // The tensors that the model computes with, under Hugging Face's names, in a fixed order. All require gradients.
  const std::vector<std::pair<std::string, Tensor>>& named_parameters() const { return named_; }

  // ids: (B, T) of int64 or int32, T ≤ context. Returns the logits (B, T, vocab) in float32.
  Tensor forward(const Tensor& ids) const;

  // The same for the T tokens that follow those in the cache, which grows by T. Computes no gradients.
  Tensor forward(const Tensor& ids, KvCache& cache) const;

  // Only the last row of these logits: (B, vocab).
  Tensor next_logits(const Tensor& ids, KvCache& cache) const;

  // The mean cross-entropy of tokens[:, 1:], each given the tokens before it: tokens (B, T+1) → a float32 number.
  // Logits exist for a piece of the tokens at a time. If gradients are needed, those of the logits are computed in the
  // forward pass.
  Tensor loss(const Tensor& tokens) const;

  // The first operation in the order of the forward pass whose output is not finite.
  struct Nonfinite {
    std::string operation;  // Hugging Face's name of the module: "model.layers.3.mlp.act_fn", "lm_head"
    int64_t sequence = 0;   // the first sequence of the batch where it is not finite
  };

  // Computes the loss again, without gradients, and checks every output on the way. Returns nothing if all are finite.
  std::optional<Nonfinite> find_nonfinite(const Tensor& tokens) const;

  // With true, activations of a layer are recomputed in the backward pass instead of kept. Gradients are bit-equal.
  void set_recompute(bool recompute) { recompute_ = recompute; }

  void set_compute_dtype(at::ScalarType dtype) { compute_dtype_ = dtype; }
  at::ScalarType compute_dtype() const { return compute_dtype_; }
  at::Device device() const { return embedding_.device(); }

 private:
  Qwen2(const ModelConfig& config, at::Device device, const std::function<Tensor(const ParameterShape&)>& value);

  struct Hidden {
    Tensor h, head;  // rms_norm of the last residual stream in the type of the products, and the head for its logits
  };
  Hidden hidden(const Tensor& ids, KvCache* cache, const Observer* observer = nullptr) const;  // appends to the cache
  Tensor logits(const Tensor& h, const Tensor& head) const;
  Stream cached_layer(const Stream& stream, size_t index, const Rotation& positions, KvCache& cache) const;
  Rotation rotation(int64_t first, int64_t count) const;
  Numerics numerics() const { return {config_.rms_eps, compute_dtype_}; }
  std::vector<Tensor*> parameter_slots();  // in the order of parameter_shapes

  ModelConfig config_;
  std::vector<std::pair<std::string, Tensor>> named_;
  Tensor embedding_, final_norm_, head_;  // the head is undefined if it is tied
  std::vector<Layer> layers_;
  Rotation rotation_;  // all positions of the context
  at::ScalarType compute_dtype_ = at::kFloat;
  bool recompute_ = false;
};

}  // namespace prism::model
