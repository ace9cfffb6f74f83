#include "prism/model/parameters.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "prism/io/hash.h"

namespace prism::model {
namespace {

constexpr double kStandardDeviation = 0.02;

void add_layer(std::vector<ParameterShape>& list, const ModelConfig& c, int64_t layer) {
  const int64_t queries = c.heads * c.head_dim, keys = c.kv_heads * c.head_dim;
  const auto add = [&](const char* name, std::vector<int64_t> shape, Initial initial) {
    const bool matrix = shape.size() == 2;
    list.push_back({fmt::format("model.layers.{}.{}", layer, name), std::move(shape), initial, matrix});
  };
  add("input_layernorm.weight", {c.width}, Initial::One);
  add("self_attn.q_proj.weight", {queries, c.width}, Initial::Normal);
  add("self_attn.k_proj.weight", {keys, c.width}, Initial::Normal);
  add("self_attn.v_proj.weight", {keys, c.width}, Initial::Normal);
  add("self_attn.q_proj.bias", {queries}, Initial::Zero);
  add("self_attn.k_proj.bias", {keys}, Initial::Zero);
  add("self_attn.v_proj.bias", {keys}, Initial::Zero);
  add("self_attn.o_proj.weight", {c.width, queries}, Initial::Residual);
  add("post_attention_layernorm.weight", {c.width}, Initial::One);
  add("mlp.gate_proj.weight", {c.mlp, c.width}, Initial::Normal);
  add("mlp.up_proj.weight", {c.mlp, c.width}, Initial::Normal);
  add("mlp.down_proj.weight", {c.width, c.mlp}, Initial::Residual);
}

// The output function of SplitMix64 (Steele, Lea and Flood 2014).
uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

double uniform(uint64_t stream, uint64_t counter) {  // in (0, 1]
  return static_cast<double>((mix(stream + counter * 0x9e3779b97f4a7c15) >> 11) + 1) * 0x1p-53;
}

// The Box–Muller transform: elements 2j and 2j + 1 come from one pair of uniform numbers.
void fill_normal(float* values, int64_t count, uint64_t stream, double deviation) {
  at::parallel_for(0, (count + 1) / 2, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      const double radius = deviation * std::sqrt(-2 * std::log(uniform(stream, 2 * j)));
      const double angle = 2 * std::numbers::pi * uniform(stream, 2 * j + 1);
      values[2 * j] = static_cast<float>(radius * std::cos(angle));
      if (2 * j + 1 < count) values[2 * j + 1] = static_cast<float>(radius * std::sin(angle));
    }
  });
}

}  // namespace

std::vector<ParameterShape> parameter_shapes(const ModelConfig& c) {
  std::vector<ParameterShape> list;
  list.push_back({"model.embed_tokens.weight", {c.vocab, c.width}});
  for (int64_t layer = 0; layer < c.layers; ++layer) add_layer(list, c, layer);
  list.push_back({"model.norm.weight", {c.width}, Initial::One});
  if (!c.tied) list.push_back({"lm_head.weight", {c.vocab, c.width}});
  return list;
}

at::Tensor initial_value(const ParameterShape& parameter, const ModelConfig& config, uint64_t seed, InitScale scale) {
  if (parameter.initial == Initial::One) return at::ones(parameter.shape);
  if (parameter.initial == Initial::Zero) return at::zeros(parameter.shape);
  const bool shrinks = scale == InitScale::Depth && parameter.initial == Initial::Residual;
  const double deviation = kStandardDeviation * (shrinks ? 1 / std::sqrt(2.0 * config.layers) : 1);
  at::Tensor value = at::empty(parameter.shape);
  const std::string hash = io::hash_bytes(fmt::format("{}:{}", seed, parameter.name));
  fill_normal(value.data_ptr<float>(), value.numel(), std::stoull(hash.substr(0, 16), nullptr, 16), deviation);
  return value;
}

}  // namespace prism::model
