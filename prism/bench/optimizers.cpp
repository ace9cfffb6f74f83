#include "prism/bench/optimizers.h"

#include <ATen/Context.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "prism/bench/timing.h"
#include "prism/io/error.h"
#include "prism/optim/registry.h"
#include "prism/train/machine.h"
#include "prism/train/step_graph.h"
#include "prism/train/summary.h"
#include "prism/train/trainer.h"

namespace prism::bench {
namespace {

constexpr double kMebibyte = 1 << 20;

// Returns the options that Mixed and training change from PRISM's own defaults.
Json recommended() {
  const auto own = prism::make_options("prism"), in_mixed = make_mixed_options("prism");
  Json values = Json::object();
  for (const auto& option : own->table()) {
    if (option.get(*own) != option.get(*in_mixed)) values[option.name] = option.get(*in_mixed);
  }
  return values;
}

std::vector<Entrant> make_entrants() {
  Json on_inputs = recommended();  // the Gram matrices of the inputs for wide matrices, too
  on_inputs["side"] = "inputs";
  const int64_t root_every = make_mixed_options("prism")->to_json().at("root_every");
  const Json minimax9 = {{"coefficients", "minimax9"}};
  std::vector<Entrant> list = {
      {"prism", "prism"},
      {"prism_minimax9", "prism", minimax9},
      {"prism_ema_minimax9", "prism", {{"coefficients", "minimax9"}, {"covariance", "ema"}}},
      {"prism_ema8_minimax9",
       "prism",
       {{"coefficients", "minimax9"}, {"covariance", "ema"}, {"covariance_every", 8}},
       /*rest=*/false,
       /*usual=*/true,
       /*cycle=*/8},
      {"prism_recommended", "prism", recommended(), /*rest=*/false, /*usual=*/true, /*cycle=*/root_every},
      {"prism_inputs", "prism", on_inputs, /*rest=*/false, /*usual=*/false},
      {"muon", "muon"},
      {"muon_minimax9", "muon", minimax9},
      {"tikhonovmuon_minimax9", "tikhonovmuon", minimax9},
      {"adamw", "adamw"},
      {"adamw_rest", "adamw", Json::object(), /*rest=*/true},
      {"prism_stacked", "prism", {{"solver", "stacked"}}, /*rest=*/false, /*usual=*/false},
  };
  std::set<std::string> named;
  for (const auto& entrant : list) named.insert(entrant.optimizer);
  for (const auto& name : optimizer_names()) {
    if (named.contains(name)) continue;
    const auto options = prism::make_options(name)->to_json();
    list.push_back({name, name, Json::object(), false, false, options.value("refresh", int64_t{1})});
  }
  return list;
}

}  // namespace

std::unique_ptr<Options> Entrant::make_options() const { return prism::make_options(optimizer, options); }

const std::vector<Entrant>& entrants() {
  static const std::vector<Entrant> list = make_entrants();
  return list;
}

const Entrant& entrant(const std::string& name) {
  const auto found = std::ranges::find(entrants(), name, &Entrant::name);
  if (found == entrants().end()) throw Error(fmt::format("bench: unknown optimizer '{}'", name));
  return *found;
}

double StepTime::best_ms() const { return captured_ms ? std::min(eager_ms, *captured_ms) : eager_ms; }

nlohmann::json StepTime::to_json(const std::optional<Peak>& peak) const {
  nlohmann::json row = {{"eager_ms", eager_ms}, {"memory_mib", memory_mib}};
  if (captured_ms) row["captured_ms"] = *captured_ms;
  if (!work) return row;
  const double ms = best_ms();
  if (work->flop > 0) row["tflops"] = work->flop / ms / 1e9;
  row["gb_per_s"] = work->bytes / ms / 1e6;
  if (peak) row["share_of_floor"] = peak->floor_ms(*work) / ms;
  return row;
}

std::vector<Tensor> make_parameters(const std::vector<Shape>& shapes, at::Device device) {
  at::manual_seed(0);
  const auto options = at::device(device).dtype(at::kFloat);
  std::vector<Tensor> parameters;
  for (const auto& shape : shapes) {
    auto weight = (at::randn(shape, options) * 0.02).set_requires_grad(true);
    weight.mutable_grad() = at::randn(shape, options);
    parameters.push_back(weight);
  }
  return parameters;
}

StepTime measure(const Entrant& entrant, const std::vector<Tensor>& parameters, int64_t repeats) {
  const auto device = parameters.front().device();
  const OwnStream stream(device);
  const int64_t before = device.is_cpu() ? 0 : allocated_bytes(device);
  auto options = entrant.options;
  const bool captures = has_graphs(device) && entrant.make_options()->can_be_captured();
  if (captures) options["capturable"] = true;
  const auto optimizer = make_optimizer(entrant.optimizer, parameters, options);
  const auto cycle = [&] {
    for (int64_t i = 0; i < entrant.cycle; ++i) optimizer->step();
  };
  // About as many steps of each optimizer: in a longer run a GPU gets slower.
  const int64_t cycles = (repeats + entrant.cycle - 1) / entrant.cycle;
  for (int64_t i = 0; i < kWarmUpSteps; ++i) optimizer->step();
  train::synchronize(device);
  train::reset_peak_memory(device);

  std::vector<Shape> shapes;
  for (const auto& parameter : parameters) shapes.push_back(parameter.sizes().vec());
  StepTime result{.name = entrant.name, .work = step_work(*entrant.make_options(), shapes)};
  result.eager_ms = train::median(time_calls(device, cycles, cycle)) / static_cast<double>(entrant.cycle);
  const int64_t bytes = device.is_cpu() ? train::state_bytes(*optimizer) : train::peak_memory(device).device - before;
  result.memory_mib = static_cast<double>(bytes) / kMebibyte;
  if (captures)
    result.captured_ms = train::median(time_graph(device, cycles, cycle)) / static_cast<double>(entrant.cycle);
  return result;
}

}  // namespace prism::bench
