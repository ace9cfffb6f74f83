#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "prism/model/config.h"

namespace prism::model {

enum class Initial {
  Normal,
  Residual,  // as Normal, for a matrix whose output is added to the residual stream; InitScale may shrink it
  One,
  Zero,
};

struct ParameterShape {
  std::string name;  // Hugging Face's: model.layers.0.self_attn.q_proj.weight
  std::vector<int64_t> shape;
  Initial initial = Initial::Normal;
  bool hidden_matrix = false;
};

// Every parameter of the model in a fixed order: embedding, layers, final norm, and the head if it is not tied.
std::vector<ParameterShape> parameter_shapes(const ModelConfig& config);

// The initial value of a parameter, in float32 on the CPU. Element i depends only on (scale, seed, name, i).
at::Tensor initial_value(const ParameterShape& parameter, const ModelConfig& config, uint64_t seed,
                         InitScale scale = InitScale::Qwen2);

}  // namespace prism::model
