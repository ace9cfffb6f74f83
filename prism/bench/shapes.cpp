#include "prism/bench/shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <numeric>
#include <optional>

#include "prism/io/error.h"
#include "prism/model/config.h"
#include "prism/model/parameters.h"

namespace prism::bench {
namespace {

ShapeSet model_set(const std::string& name, const model::ModelConfig& config) {
  ShapeSet set{name, {}, {}};
  for (const auto& parameter : model::parameter_shapes(config))
    (parameter.hidden_matrix ? set.matrices : set.rest).push_back(parameter.shape);
  return set;
}

ShapeSet preset_set(const std::string& name) {
  auto config = model::preset(name);
  config.vocab = kVocab;
  return model_set(name, config);
}

ShapeSet qwen2_7b() {
  return model_set("7b", {.vocab = 152064,
                          .layers = 28,
                          .width = 3584,
                          .heads = 28,
                          .kv_heads = 4,
                          .head_dim = 128,
                          .mlp = 18944,
                          .tied = false});
}

ShapeSet odd_set() {
  ShapeSet set{"odd", {}, {}};
  for (const int64_t m : {1, 7, 129, 5000}) {
    for (const int64_t n : {1, 7, 129, 5000}) set.matrices.push_back({m, n});
  }
  return set;
}

// The set named "<width>x<layers>"; nothing if the name is not of that form.
std::optional<ShapeSet> sized_set(const std::string& name) {
  int64_t width = 0, layers = 0;
  const char* end = name.data() + name.size();
  const auto [cross, problem] = std::from_chars(name.data(), end, width);
  if (problem != std::errc() || cross == end || *cross != 'x') return std::nullopt;
  const auto [last, other_problem] = std::from_chars(cross + 1, end, layers);
  if (other_problem != std::errc() || last != end) return std::nullopt;
  if (width < 16 || width > 65536 || width % 16 != 0 || layers < 1 || layers > 1000)
    throw Error(
        fmt::format("bench: '{}' must have a width of 16 to 65536, a multiple of 16, and 1 to 1000 layers", name));
  ShapeSet set{name, {}, {}};
  const int64_t kv = width / 4, mlp = width / 4 * 11;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::vector<Shape> of_layer = {{width, width}, {kv, width},  {kv, width}, {width, width},
                                         {mlp, width},   {mlp, width}, {width, mlp}};
    set.matrices.insert(set.matrices.end(), of_layer.begin(), of_layer.end());
  }
  return set;
}

}  // namespace

int64_t ShapeSet::elements() const {
  int64_t sum = 0;
  for (const auto& shape : matrices)
    sum += std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return sum;
}

ShapeSet shape_set(const std::string& name) {
  if (name == "7b") return qwen2_7b();
  if (name == "wide") return {name, {{8192, 28672}, {28672, 8192}}, {}};
  if (name == "experts") return {name, std::vector<Shape>(256, {1024, 2048}), {}};
  if (name == "odd") return odd_set();
  if (name == "lora") return {name, std::vector<Shape>(2000, {16, 4096}), {}};
  if (auto sized = sized_set(name)) return *sized;
  if (std::ranges::find(model::preset_names(), name) != model::preset_names().end()) return preset_set(name);
  throw Error(fmt::format("expected {} or WIDTHxLAYERS, got '{}'", fmt::join(shape_set_names(), " or "), name));
}

const std::vector<std::string>& shape_set_names() {
  static const std::vector<std::string> names = [] {
    auto list = model::preset_names();
    list.insert(list.end(), {"7b", "wide", "experts", "odd", "lora"});
    return list;
  }();
  return names;
}

}  // namespace prism::bench
