#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "prism/model/config.h"

namespace prism::model {

enum class Initial {
  kNormal,    // N(0, 0.02²)
  kResidual,  // N(0, 0.02² / (2 · layers)): what is added to the residual stream, so that depth does not make it grow
  kOne,
  kZero,
};

struct ParameterShape {
  std::string name;  // Hugging Face's: model.layers.0.self_attn.q_proj.weight
  std::vector<int64_t> shape;
  Initial initial = Initial::kNormal;
  bool hidden_matrix = false;
};

// Every parameter of the model in a fixed order: embedding, layers, final norm, and the head where it is not tied.
std::vector<ParameterShape> parameter_shapes(const ModelConfig& config);

// The first value of a parameter, in float32 on the CPU. Element i is a function of (seed, name, i) alone.
at::Tensor initial_value(const ParameterShape& parameter, const ModelConfig& config, uint64_t seed);

}  // namespace prism::model
