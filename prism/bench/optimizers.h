#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "prism/bench/shapes.h"
#include "prism/bench/work.h"
#include "prism/optim/optimizer.h"

namespace prism::bench {

// An optimizer with settings under which it is measured. Its name says every setting that is not the library's default:
// "prism" is what make_optimizer("prism") makes.
struct Entrant {
  std::string name;       // of the line: "prism_minimax9"
  std::string optimizer;  // "prism"
  Json options = Json::object();
  bool rest = false;  // takes the embedding, norms and biases instead of the matrices
  bool usual = true;  // measured unless others are asked for
  int64_t cycle = 1;  // steps of unequal cost that belong together

  std::unique_ptr<Options> make_options() const;
};
const std::vector<Entrant>& entrants();
const Entrant& entrant(const std::string& name);

// One line of the table, ours or a peer's.
struct StepTime {
  std::string name;
  bool ours = true;
  double eager_ms = 0;                               // medians
  std::optional<double> captured_ms = std::nullopt;  // replayed from a CUDA graph
  double memory_mib = 0;  // on a GPU the peak over weights and gradients, on the CPU the state
  std::optional<Work> work = std::nullopt;

  double best_ms() const;
  nlohmann::json to_json(const std::optional<Peak>& peak) const;
};

// Tensors of these shapes with gradients, the same for the same shapes.
std::vector<Tensor> make_parameters(const std::vector<Shape>& shapes, at::Device device);

// Whole steps of a fresh optimizer on the parameters, which have gradients.
StepTime measure(const Entrant& entrant, const std::vector<Tensor>& parameters, int64_t repeats);

}  // namespace prism::bench
