#include "prism/model/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <numeric>
#include <utility>

#include "prism/io/error.h"
#include "prism/model/parameters.h"

namespace prism::model {
namespace {

struct Preset {
  const char* name;
  int64_t layers, width, heads, kv_heads, mlp, context;
};

constexpr std::array kPresets = {
    Preset{"demo", 4, 128, 4, 2, 352, 128},
    Preset{"22m", 8, 512, 8, 2, 1408, 2048},
    Preset{"124m", 12, 768, 12, 4, 2048, 2048},
    Preset{"1b", 24, 2048, 32, 8, 5632, 2048},
};

int64_t elements(const ParameterShape& p) {
  return std::accumulate(p.shape.begin(), p.shape.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

void ModelConfig::check() const {
  // Far above any model, and small enough that no product of three of these overflows.
  constexpr int64_t kMost = 1 << 20;
  const std::pair<const char*, int64_t> sizes[] = {
      {"vocab", vocab},       {"layers", layers},     {"width", width}, {"heads", heads},
      {"kv_heads", kv_heads}, {"head_dim", head_dim}, {"mlp", mlp},     {"context", context},
  };
  for (const auto& [name, value] : sizes) {
    if (value < 1 || value > kMost) {
      throw Error(fmt::format("model: {} must be between 1 and {}, got {}", name, kMost, value));
    }
  }
  if (heads % kv_heads != 0) {
    throw Error(fmt::format("model: heads ({}) must be a multiple of kv_heads ({})", heads, kv_heads));
  }
  if (head_dim % 2 != 0) throw Error(fmt::format("model: head_dim must be even, got {}", head_dim));
  if (!(rope_theta > 0)) throw Error(fmt::format("model: rope_theta must be positive, got {}", rope_theta));
  if (!(rms_eps > 0)) throw Error(fmt::format("model: rms_eps must be positive, got {}", rms_eps));
}

int64_t ModelConfig::parameters() const {
  int64_t sum = 0;
  for (const auto& p : parameter_shapes(*this)) sum += elements(p);
  return sum;
}

int64_t ModelConfig::matrix_parameters() const {
  int64_t sum = 0;
  for (const auto& p : parameter_shapes(*this)) sum += p.hidden_matrix ? elements(p) : 0;
  return sum;
}

ModelConfig preset(std::string_view name) {
  for (const auto& p : kPresets) {
    if (name == p.name) {
      return {.layers = p.layers,
              .width = p.width,
              .heads = p.heads,
              .kv_heads = p.kv_heads,
              .head_dim = p.width / p.heads,
              .mlp = p.mlp,
              .context = p.context};
    }
  }
  throw Error(fmt::format("model: unknown preset '{}', expected one of: {}", name, fmt::join(preset_names(), ", ")));
}

const std::vector<std::string>& preset_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& p : kPresets) list.emplace_back(p.name);
    return list;
  }();
  return names;
}

}  // namespace prism::model
