// Prints a hash of all weights and state after each of 20 steps, for every optimizer and variant. To compare two builds
// of the library, compare what they print on the same machine; the hashes differ between machines.

#include <cstdio>
#include <map>
#include <random>

#include "prism/prism.h"

namespace {

using namespace prism;
using Named = std::vector<std::pair<std::string, Tensor>>;

Tensor random(at::IntArrayRef shape, uint64_t seed, at::ScalarType type) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal;
  Tensor values = at::empty(shape, at::kDouble);
  for (int64_t i = 0; i < values.numel(); ++i) values.data_ptr<double>()[i] = normal(generator);
  return values.to(type);
}

uint64_t hash_of(const Tensor& tensor, uint64_t hash) {
  const Tensor bytes = tensor.detach().cpu().contiguous().view({-1});
  const auto* data = static_cast<const unsigned char*>(bytes.const_data_ptr());
  for (size_t i = 0; i < bytes.nbytes(); ++i) hash = (hash ^ data[i]) * 0x100000001b3;
  return hash;
}

uint64_t hash_of(const Named& parameters, const Optimizer& optimizer) {
  std::map<std::string, Tensor> all;
  for (const auto& [name, tensor] : parameters) all["weight." + name] = tensor;
  for (const auto& [name, tensor] : optimizer.snapshot().tensors) all[name] = tensor;
  uint64_t hash = 0xcbf29ce484222325;
  for (const auto& [name, tensor] : all) {
    for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
    hash = hash_of(tensor, hash);
  }
  return hash;
}

Named parameters_of(bool matrices, at::ScalarType type) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> shapes = {
      {"a", {6, 4}}, {"b", {6, 4}}, {"c", {6, 4}}, {"d", {4, 9}}, {"e", {2, 5, 3}}, {"f", {6, 3, 2, 2}}};
  if (!matrices) shapes.push_back({"g", {7}});
  Named result;
  for (const auto& [name, shape] : shapes)
    result.emplace_back(name, random(shape, std::hash<std::string>()(name), type).requires_grad_(true));
  return result;
}

void run(const std::string& label, const Named& parameters, Optimizer& optimizer) {
  std::printf("%s", label.c_str());
  for (int step = 1; step <= 20; ++step) {
    uint64_t seed = static_cast<uint64_t>(step) * 100;
    for (const auto& [name, tensor] : parameters) {
      tensor.mutable_grad() = random(tensor.sizes(), ++seed, tensor.scalar_type());
      if (name == "b" && step % 3 == 0) tensor.mutable_grad() = Tensor();
      if (name == "d" && step == 7 && optimizer.group_options(0).skip_nonfinite()) tensor.mutable_grad().fill_(NAN);
    }
    if (step == 11) {
      optimizer.step_if(at::zeros({}, at::kBool));
    } else {
      optimizer.step();
    }
    std::printf(" %016lx", static_cast<unsigned long>(hash_of(parameters, optimizer)));
  }
  std::printf("\n");
}

std::vector<Json> variants(const std::string& name) {
  std::vector<Json> list = {Json::object(),
                            {{"weight_decay", 0.1}, {"maximize", true}},
                            {{"skip_nonfinite", true}},
                            {{"state_dtype", "float32"}}};
  const Json defaults = make_options(name)->to_json();
  if (defaults.contains("split")) {
    list.push_back({{"fold", "flatten"}});
  }
  if (defaults.contains("amsgrad")) list.push_back({{"amsgrad", true}});
  if (defaults.contains("centered")) list.push_back({{"centered", true}, {"momentum", 0.9}});
  if (defaults.contains("lr_decay")) list.push_back({{"lr_decay", 0.1}, {"initial_accumulator_value", 0.1}});
  if (defaults.contains("solver")) list.push_back({{"solver", "exact"}});
  if (defaults.contains("nesterov")) {
    list.push_back({{"nesterov", false}, {"bias_correction", true}, {"scale", "spectral"}});
    list.push_back({{"normalize", "rows"}, {"row_beta", 0.9}, {"scale", "none"}});
    list.push_back({{"fixed_norm", true}});
    list.push_back({{"coefficients", "minimax9"}});
    list.push_back({{"coefficients", "polar_express"}, {"steps", 7}});
    list.push_back({{"state_dtype", "bfloat16"}});
  }
  if (name == "muon" || name == "prism") list.push_back({{"solver", "stacked"}});
  if (name == "tikhonovmuon") list.push_back({{"damping_absolute", 0.5}});
  if (name == "soap") list.push_back({{"refresh", 3}});
  if (name == "shampoo") list.push_back({{"beta", 0.9}});
  if (name == "prism") {
    const Json schedule = {{"kind", "linear"}, {"warmup", 3}, {"total", 15}, {"floor", 0.1}};
    for (const char* side : {"auto", "left", "right", "both", "long"}) {
      for (const char* covariance : {"instant", "ema", "sketch", "subspace"}) {
        list.push_back({{"side", side}, {"covariance", covariance}});
        list.push_back({{"side", side}, {"covariance", covariance}, {"solver", "exact"}, {"gamma_schedule", schedule}});
        list.push_back({{"side", side}, {"covariance", covariance}, {"gamma", 0}});
        if (covariance != std::string("instant"))
          list.push_back(
              {{"side", side}, {"covariance", covariance}, {"covariance_every", 3}, {"covariance_beta", 0.9}});
      }
    }
    list.push_back({{"covariance", "sketch"}, {"rank", 2}});
    list.push_back({{"covariance", "subspace"}, {"rank", 2}});
  }
  return list;
}

}  // namespace

int main() {
  for (const auto& name : optimizer_names()) {
    for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      for (Json options : variants(name)) {
        const bool narrow = type == at::kBFloat16;
        if (narrow && options.contains("state_dtype")) continue;
        if (narrow) options["master_weights"] = true;
        options["lr"] = 0.05;
        const auto parameters = parameters_of(make_options(name)->takes_matrices(), type);
        run(name + " " + at::toString(type) + std::string(" ") + options.dump(), parameters,
            *make_optimizer(name, parameters, options));
      }
      if (!make_options(name)->takes_matrices()) continue;
      const Named split = {{"a", random({9, 5}, 1, type).requires_grad_(true)},
                           {"b", random({9, 5}, 2, type).requires_grad_(true)}};
      run(name + " " + at::toString(type) + std::string(" split"), split,
          *make_optimizer(name, split, {{"split", {4, 2, 3}}}));
    }
  }
  for (const auto type : {at::kFloat, at::kDouble}) {
    const auto parameters = parameters_of(false, type);
    Mixed mixed(parameters, PrismOptions(0.02).weight_decay(0.1), AdamWOptions(0.01));
    run(std::string("mixed ") + at::toString(type), parameters, mixed);
  }
}
