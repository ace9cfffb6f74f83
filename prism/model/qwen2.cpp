#include "prism/model/qwen2.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include <cmath>

#include "prism/model/parameters.h"

namespace prism::model {
namespace {

// Rounds frequencies and angles to float32, as transformers does.
Rotation rope_tables(const ModelConfig& c) {
  const int64_t half = c.head_dim / 2;
  Rotation table = {at::empty({c.context, half}), at::empty({c.context, half})};
  auto* cosines = table.cosine.data_ptr<float>();
  auto* sines = table.sine.data_ptr<float>();
  for (int64_t i = 0; i < half; ++i) {
    const auto frequency = static_cast<float>(std::pow(c.rope_theta, -2.0 * static_cast<double>(i) / c.head_dim));
    for (int64_t t = 0; t < c.context; ++t) {
      const float angle = static_cast<float>(t) * frequency;
      cosines[t * half + i] = static_cast<float>(std::cos(static_cast<double>(angle)));
      sines[t * half + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
  return table;
}

// Concatenates the tensors along the rows, and replaces each by its view of the result.
Tensor fuse(std::initializer_list<Tensor*> parts) {
  std::vector<Tensor> list;
  for (const Tensor* part : parts) list.push_back(*part);
  const Tensor whole = at::cat(list);
  int64_t first = 0;
  for (Tensor* part : parts) {
    *part = whole.narrow(0, first, part->size(0));
    first += part->size(0);
  }
  return whole;
}

}  // namespace

KvCache::KvCache(const Qwen2& model, int64_t batch, int64_t capacity) {
  const ModelConfig& c = model.config();
  const auto options = at::TensorOptions().device(model.device()).dtype(model.compute_dtype());
  keys_ = at::empty({c.layers, batch, c.kv_heads, capacity, c.head_dim}, options);
  values_ = at::empty_like(keys_);
}

void KvCache::check(const Tensor& ids) const {
  TORCH_CHECK_VALUE(ids.size(0) == keys_.size(1) && length_ + ids.size(1) <= capacity(),
                    "model: the cache has room for ", capacity() - length_, " more tokens of ", keys_.size(1),
                    " sequences, got ids of shape ", ids.sizes());
}

Qwen2::Qwen2(const ModelConfig& config, uint64_t seed, at::Device device, InitScale scale)
    : Qwen2(config, device, [&](const ParameterShape& p) { return initial_value(p, config, seed, scale); }) {}

Qwen2 Qwen2::without_weights(const ModelConfig& config, at::Device device) {
  return Qwen2(config, device, [&](const ParameterShape& p) { return at::empty(p.shape, device); });
}

Qwen2::Qwen2(const ModelConfig& config, at::Device device, const std::function<Tensor(const ParameterShape&)>& value)
    : config_(config) {
  config_.check();
  compute_dtype_ = device.is_cuda() ? at::kBFloat16 : at::kFloat;
  layers_.resize(config_.layers);
  const at::NoGradGuard no_gradients;
  const auto shapes = parameter_shapes(config_);
  const auto slots = parameter_slots();
  for (size_t i = 0; i < slots.size(); ++i) *slots[i] = value(shapes[i]).to(device);
  for (Layer& l : layers_) {
    l.Wqkv = fuse({&l.Wq, &l.Wk, &l.Wv});
    l.bqkv = fuse({&l.bq, &l.bk, &l.bv});
    l.Wgu = fuse({&l.Wgate, &l.Wup});
  }
  for (size_t i = 0; i < slots.size(); ++i) named_.emplace_back(shapes[i].name, slots[i]->requires_grad_(true));
  const Rotation table = rope_tables(config_);
  rotation_ = {table.cosine.to(device), table.sine.to(device)};
}

std::vector<Tensor*> Qwen2::parameter_slots() {
  std::vector<Tensor*> slots = {&embedding_};
  for (Layer& l : layers_) {
    slots.insert(slots.end(), {&l.input_norm, &l.Wq, &l.Wk, &l.Wv, &l.bq, &l.bk, &l.bv, &l.Wo, &l.post_norm, &l.Wgate,
                               &l.Wup, &l.Wdown});
  }
  slots.push_back(&final_norm_);
  if (!config_.tied) slots.push_back(&head_);
  return slots;
}

Rotation Qwen2::rotation(int64_t first, int64_t count) const {
  TORCH_CHECK_VALUE(first + count <= config_.context, "model: a sequence of ", first + count,
                    " tokens is longer than the context of ", config_.context);
  return {rotation_.cosine.narrow(0, first, count), rotation_.sine.narrow(0, first, count)};
}

Qwen2::Hidden Qwen2::hidden(const Tensor& ids, KvCache* cache, const Observer* observer) const {
  TORCH_CHECK_VALUE(ids.dim() == 2 && ids.numel() > 0, "model: token ids must have the shape (batch, tokens), got ",
                    ids.sizes());
  if (cache != nullptr) cache->check(ids);
  const Rotation positions = rotation(cache != nullptr ? cache->length_ : 0, ids.size(1));
  const auto [x, head] = embed(embedding_, ids.to(at::kLong));
  auto numbers = numerics();
  numbers.observer = observer;
  numbers.observe("embed_tokens", x);
  Stream stream = {x, Tensor()};
  for (size_t i = 0; i < layers_.size(); ++i) {
    numbers.layer = static_cast<int64_t>(i);
    if (cache != nullptr) {
      stream = cached_layer(stream, i, positions, *cache);
    } else if (recompute_ && at::GradMode::is_enabled()) {
      stream = layer_recomputed(stream, layers_[i], positions, numbers);
    } else {
      stream = layer_forward(stream, layers_[i], positions, numbers);
    }
  }
  numbers.layer = -1;
  if (cache != nullptr) cache->length_ += ids.size(1);
  return {norm(stream, final_norm_, numbers), config_.tied ? head : head_};
}

Stream Qwen2::cached_layer(const Stream& stream, size_t index, const Rotation& positions, KvCache& cache) const {
  const auto [q, k, v, x] = attention_input(stream, layers_[index], positions, numerics());
  const int64_t seen = cache.length_, T = x.size(1);
  const Tensor keys = cache.keys_[static_cast<int64_t>(index)], values = cache.values_[static_cast<int64_t>(index)];
  keys.narrow(2, seen, T).copy_(k);
  values.narrow(2, seen, T).copy_(v);
  const Tensor o = attention(q, keys.narrow(2, 0, seen + T), values.narrow(2, 0, seen + T));
  return attention_output_and_mlp(x, o, layers_[index], numerics());
}

Tensor Qwen2::logits(const Tensor& h, const Tensor& head) const {
  return at::linear(h, head.to(compute_dtype_)).to(at::kFloat);
}

Tensor Qwen2::forward(const Tensor& ids) const {
  const auto [h, head] = hidden(ids, nullptr);
  return logits(h, head);
}

Tensor Qwen2::forward(const Tensor& ids, KvCache& cache) const {
  const at::NoGradGuard no_gradients;
  const auto [h, head] = hidden(ids, &cache);
  return logits(h, head);
}

Tensor Qwen2::next_logits(const Tensor& ids, KvCache& cache) const {
  const at::NoGradGuard no_gradients;
  const auto [h, head] = hidden(ids, &cache);
  return logits(h.select(1, -1), head);
}

Tensor Qwen2::loss(const Tensor& tokens) const {
  TORCH_CHECK_VALUE(tokens.dim() == 2 && tokens.size(1) >= 2,
                    "model: the loss needs tokens of the shape (batch, at least 2), got ", tokens.sizes());
  const int64_t T = tokens.size(1) - 1;
  const Tensor targets = tokens.narrow(1, 1, T).to(at::kLong).reshape(-1);
  const auto [h, head] = hidden(tokens.narrow(1, 0, T), nullptr);
  return linear_cross_entropy(h.view({-1, config_.width}), head, targets, compute_dtype_);
}

std::optional<Qwen2::Nonfinite> Qwen2::find_nonfinite(const Tensor& tokens) const {
  const at::NoGradGuard no_gradients;
  const int64_t B = tokens.size(0), T = tokens.size(1) - 1;
  std::optional<Nonfinite> found;
  const auto look = [&](const std::string& operation, const Tensor& output) {
    if (found) return;
    const Tensor bad = at::isfinite(output).reshape({B, -1}).all(1).logical_not();
    if (bad.any().item<bool>()) found = {operation, bad.to(at::kInt).argmax().item<int64_t>()};
  };
  const Observer observer = [&](int64_t layer, const char* operation, const Tensor& output) {
    look(layer < 0 ? fmt::format("model.{}", operation) : fmt::format("model.layers.{}.{}", layer, operation), output);
  };
  const auto [h, head] = hidden(tokens.narrow(1, 0, T), nullptr, &observer);
  std::vector<Tensor> losses;
  for (int64_t i = 0; i < B; ++i) {
    const Tensor targets = tokens[i].narrow(0, 1, T).to(at::kLong);
    losses.push_back(linear_cross_entropy(h[i], head, targets, compute_dtype_));
  }
  look("lm_head", at::stack(losses));
  return found;
}

}  // namespace prism::model
