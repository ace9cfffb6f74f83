// The optimizers and settings that the contract suite tests, and its fixture.

#pragma once

#include <algorithm>
#include <memory>
#include <ostream>

#include "tests/optim/helpers.h"

namespace prism::test {

struct Case {
  std::string label;
  std::string name;
  Json options = Json::object();
};

// Every optimizer in the registry, and settings that take another path.
inline std::vector<Case> cases() {
  std::vector<Case> list;
  for (const auto& name : optimizer_names()) list.push_back({name, name});
  list.push_back({"prism_plain", "prism", {{"nesterov", false}, {"solver", "stacked"}}});
  list.push_back({"prism_corrected", "prism", {{"bias_correction", true}, {"solver", "exact"}}});
  list.push_back({"prism_both", "prism", {{"side", "both"}}});
  list.push_back({"prism_ema", "prism", {{"covariance", "ema"}, {"covariance_beta", 0.9}}});
  list.push_back({"prism_ema_both", "prism", {{"covariance", "ema"}, {"side", "both"}}});
  list.push_back({"prism_sketch", "prism", {{"covariance", "sketch"}, {"rank", 2}, {"covariance_beta", 0.9}}});
  list.push_back({"prism_subspace", "prism", {{"covariance", "subspace"}, {"rank", 2}, {"covariance_beta", 0.9}}});
  list.push_back({"prism_whitened", "prism", {{"covariance", "ema"}, {"side", "whitened"}, {"root_every", 2}}});
  list.push_back({"prism_ema_seldom", "prism", {{"covariance", "ema"}, {"covariance_every", 2}}});
  list.push_back({"prism_sketch_seldom", "prism", {{"covariance", "sketch"}, {"rank", 2}, {"covariance_every", 3}}});
  list.push_back({"prism_long", "prism", {{"side", "long"}}});
  list.push_back({"prism_rows", "prism", {{"normalize", "rows"}}});
  list.push_back({"muon_rows", "muon", {{"normalize", "rows"}, {"row_beta", 0.5}}});
  list.push_back({"prism_fixed_norm", "prism", {{"fixed_norm", true}}});
  list.push_back({"tikhonovmuon_absolute", "tikhonovmuon", {{"damping_absolute", 0.1}}});
  list.push_back({"prism_warm", "prism", {{"gamma_schedule", {{"warmup", 10}}}}});
  list.push_back({"adam_amsgrad", "adam", {{"amsgrad", true}}});
  list.push_back({"rmsprop_full", "rmsprop", {{"centered", true}, {"momentum", 0.5}}});
  list.push_back({"adagrad_decaying", "adagrad", {{"lr_decay", 0.01}, {"initial_accumulator_value", 0.1}}});
  list.push_back({"shampoo_averaged", "shampoo", {{"beta", 0.9}, {"solver", "exact"}}});
  list.push_back({"soap_often", "soap", {{"refresh", 2}}});
  return list;
}

// GoogleTest looks for this name. NOLINTNEXTLINE(readability-identifier-naming)
inline void PrintTo(const Case& item, std::ostream* stream) { *stream << item.label << ' ' << item.options; }

class Contract : public ::testing::TestWithParam<Case> {
 protected:
  bool takes_matrices() const { return make_options(GetParam().name)->takes_matrices(); }
  bool couples_decay() const { return make_options(GetParam().name)->couples_decay(); }
  bool rests_first() const { return GetParam().name == "soap"; }  // its first step only makes its basis
  bool has_momenta() const {
    const auto fields = make_options(GetParam().name, options())->fields({2, 2});
    return std::any_of(fields.begin(), fields.end(), [](const Field& f) { return f.storage == Storage::State; });
  }

  Json options(const Json& more = Json::object()) const {
    Json all = GetParam().options;
    all.update(more);
    return all;
  }

  std::unique_ptr<Optimizer> make(const NamedTensors& parameters, const Json& more = Json::object()) const {
    return make_optimizer(GetParam().name, parameters, options(more));
  }

  // Two buckets of two matrices, single matrices of several proportions, stacked experts and a convolution.
  NamedTensors model(at::ScalarType type = torch::kFloat32) const {
    std::vector<std::pair<std::string, std::vector<int64_t>>> shapes = {
        {"tall.0", {6, 4}}, {"wide.0", {4, 10}}, {"tall.1", {6, 4}},     {"wide.1", {4, 10}},
        {"row", {1, 5}},    {"column", {5, 1}},  {"experts", {2, 3, 4}}, {"conv", {4, 2, 3, 3}}};
    if (!takes_matrices()) {
      shapes.push_back({"bias", {7}});
      shapes.push_back({"scalar", {}});
    }
    NamedTensors parameters;
    uint64_t seed = 1;
    for (const auto& [name, shape] : shapes) parameters.emplace_back(name, parameter(random(shape, seed++, type)));
    return parameters;
  }

  static void run(Optimizer& optimizer, const NamedTensors& parameters, int64_t first, int64_t last) {
    for (int64_t t = first; t <= last; ++t) {
      set_gradients(parameters, t);
      optimizer.step();
    }
  }

  // The same for two models that differ in the type of their weights: `wide` gets the gradients of `narrow`.
  static void run_both(Optimizer& first, const NamedTensors& narrow, Optimizer& second, const NamedTensors& wide,
                       int64_t steps) {
    for (int64_t t = 1; t <= steps; ++t) {
      set_gradients(narrow, t);
      for (size_t i = 0; i < wide.size(); ++i)
        wide[i].second.mutable_grad() = narrow[i].second.grad().to(wide[i].second.scalar_type());
      first.step();
      second.step();
    }
  }
};

}  // namespace prism::test
