#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>

#include "prism/io/error.h"
#include "prism/model/qwen2.h"
#include "tests/io/temporary_folder.h"

namespace prism::model {

inline ModelConfig tiny(bool tied = true, int64_t kv_heads = 2) {
  return {.vocab = 61,
          .layers = 3,
          .width = 40,
          .heads = 4,
          .kv_heads = kv_heads,
          .head_dim = 12,
          .mlp = 52,
          .context = 32,
          .tied = tied,
          .rope_theta = 1e4};
}

// Returns a model whose biases are not 0 and whose norms are not 1, unlike those of a fresh model.
inline Qwen2 random_model(const ModelConfig& config, uint64_t seed = 1) {
  Qwen2 model(config, seed);
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const torch::NoGradGuard no_gradients;
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (parameter.dim() == 1) parameter.add_(0.3 * torch::randn(parameter.sizes(), generator));
    if (parameter.dim() == 2) parameter.mul_(5);
  }
  return model;
}

inline at::Tensor random_tokens(const ModelConfig& config, int64_t batch, int64_t length, uint64_t seed = 7) {
  return torch::randint(config.vocab, {batch, length}, at::make_generator<at::CPUGeneratorImpl>(seed), torch::kLong);
}

// Clears the model's gradients and returns those of the loss.
inline std::vector<at::Tensor> gradients(const Qwen2& model, const at::Tensor& tokens) {
  for (const auto& [name, parameter] : model.named_parameters()) parameter.mutable_grad().reset();
  model.loss(tokens).backward();
  std::vector<at::Tensor> list;
  for (const auto& [name, parameter] : model.named_parameters()) list.push_back(parameter.grad().clone());
  return list;
}

// Returns the message of the prism::Error that the action throws.
template <typename Action>
std::string refusal(Action&& action) {
  return io::message_of<Error>(action);
}

}  // namespace prism::model
