#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "prism/bench/shapes.h"
#include "prism/bench/work.h"
#include "prism/optim/optimizer.h"

namespace prism::bench {

// An optimizer with the settings under which it is measured. Its name tells every setting that is not the library's
// default: "prism" is make_optimizer("prism").
struct Entrant {
  std::string name;       // "prism_minimax9"
  std::string optimizer;  // "prism"
  Json options = Json::object();
  bool rest = false;  // updates the embedding, norms and biases instead of the matrices
  bool usual = true;  // measured by default
  int64_t cycle = 1;  // steps after which their cost repeats

  std::unique_ptr<Options> make_options() const;
};
const std::vector<Entrant>& entrants();
const Entrant& entrant(const std::string& name);

// One row of the table, one of our optimizers or a peer's.
struct StepTime {
  std::string name;
  bool ours = true;
  double eager_ms = 0;                               // median
  std::optional<double> captured_ms = std::nullopt;  // median of replays of a CUDA graph
  double memory_mib = 0;  // on a GPU the peak beyond weights and gradients, on the CPU the state
  std::optional<Work> work = std::nullopt;

  double best_ms() const;
  nlohmann::json to_json(const std::optional<Peak>& peak) const;
};

// Makes parameters with gradients. The same shapes get the same values.
std::vector<Tensor> make_parameters(const std::vector<Shape>& shapes, at::Device device);

// Measures `repeats` steps, in whole cycles, of a new optimizer on parameters with gradients.
StepTime measure(const Entrant& entrant, const std::vector<Tensor>& parameters, int64_t repeats);

}  // namespace prism::bench
