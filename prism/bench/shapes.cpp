#include "prism/bench/shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <numeric>

#include "prism/io/error.h"
#include "prism/model/config.h"
#include "prism/model/parameters.h"

namespace prism::bench {
namespace {

ShapeSet model_set(const std::string& name) {
  auto config = model::preset(name);
  config.vocab = kVocab;
  ShapeSet set{name, {}, {}};
  for (const auto& parameter : model::parameter_shapes(config))
    (parameter.hidden_matrix ? set.matrices : set.rest).push_back(parameter.shape);
  return set;
}

ShapeSet odd_set() {
  ShapeSet set{"odd", {}, {}};
  for (const int64_t m : {1, 7, 129, 5000}) {
    for (const int64_t n : {1, 7, 129, 5000}) set.matrices.push_back({m, n});
  }
  return set;
}

struct Named {
  std::string name;
  std::function<ShapeSet()> make;
};

const std::vector<Named>& sets() {
  static const std::vector<Named> all = [] {
    std::vector<Named> list;
    for (const auto& name : model::preset_names()) list.push_back({name, [name] { return model_set(name); }});
    list.push_back({"wide", [] { return ShapeSet{"wide", {{8192, 28672}, {28672, 8192}}, {}}; }});
    list.push_back({"experts", [] { return ShapeSet{"experts", std::vector<Shape>(256, {1024, 2048}), {}}; }});
    list.push_back({"odd", odd_set});
    return list;
  }();
  return all;
}

}  // namespace

int64_t ShapeSet::elements() const {
  int64_t sum = 0;
  for (const auto& shape : matrices)
    sum += std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return sum;
}

ShapeSet shape_set(const std::string& name) {
  for (const auto& set : sets()) {
    if (set.name == name) return set.make();
  }
  throw Error(fmt::format("bench: unknown model '{}', expected one of: {}", name, fmt::join(shape_set_names(), ", ")));
}

const std::vector<std::string>& shape_set_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& set : sets()) list.push_back(set.name);
    return list;
  }();
  return names;
}

}  // namespace prism::bench
