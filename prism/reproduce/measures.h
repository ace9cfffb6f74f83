#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "prism/reproduce/result.h"

namespace prism::reproduce {

// A number of a stored run that tables show and claims compare.
struct Measure {
  std::string name;                               // "W", as experiment.columns and experiment.claims call it
  std::string title;                              // heading of its column
  std::optional<double> (*of)(const StoredRun&);  // nullopt if the run did not record it
  std::string (*text)(double);                    // the value with its unit
};

const std::vector<Measure>& measures();
const Measure& measure(const std::string& name,
                       const std::string& where);  // throws prism::Error that lists the known names

// The hidden matrices of the model that the settings describe: the shape (m, n) of each matrix of a layer, and the
// number of layers.
struct HiddenMatrices {
  std::vector<std::array<int64_t, 2>> shapes;
  int64_t layers = 0;
};
HiddenMatrices hidden_matrices(const nlohmann::json& settings);

// Returns the floating-point operations of the products in one optimizer step by the literal iteration X ← X·q(XᵀX), K
// steps on each hidden matrix. X is m×n for Muon and the stack [T; γD], 2m×n (m×2n on the left), for PRISM. With k the
// shorter and l the longer side of X, a step of degree 5 takes 4lk² + 2k³. Other methods have no such form: nullopt.
std::optional<double> literal_flop(const nlohmann::json& settings);

}  // namespace prism::reproduce
