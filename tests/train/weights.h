#pragma once

#include <algorithm>
#include <vector>

#include "prism/train/trainer.h"

// Copies all weights and the optimizer's state, but not the number of skipped steps. They are compared as bytes, since
// NaN is equal to nothing.
inline std::vector<at::Tensor> weights_and_state(const prism::train::Trainer& trainer) {
  std::vector<at::Tensor> list;
  const auto add = [&](const at::Tensor& tensor) {
    list.push_back(tensor.detach().clone().reshape({-1}).view(at::kByte));
  };
  for (const auto& [name, tensor] : trainer.model().named_parameters()) add(tensor);
  for (const auto& [name, tensor] : trainer.optimizer().snapshot().tensors) {
    if (name.starts_with("state.")) add(tensor);
  }
  return list;
}

inline bool is_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::ranges::equal(a, b, [](const at::Tensor& x, const at::Tensor& y) { return x.equal(y); });
}
