#pragma once

#include <memory>
#include <string>
#include <vector>

#include "prism/optim/optimizer.h"

namespace prism {

// The names and the summary of an optimizer.
struct OptimizerInfo {
  std::string name;        // "tikhonovmuon": in options and configurations
  std::string class_name;  // "TikhonovMuon", here and in Python
  std::string label;       // "Tikhonov Muon": on pages and in tables
  std::string summary;     // one sentence
};
const std::vector<OptimizerInfo>& optimizers();

// The lower-case names of all optimizers.
const std::vector<std::string>& optimizer_names();

// Creates the options of an optimizer from JSON; missing keys keep their defaults:
// make_options("prism", {{"lr", 0.02}, {"gamma", 2}}).
std::unique_ptr<Options> make_options(const std::string& name, const Json& values = Json::object());

// The same with the defaults that Mixed and the trainer have for what `values` leaves out.
std::unique_ptr<Options> make_mixed_options(const std::string& name, const Json& values = Json::object());

// Creates an optimizer from its lower-case name. To create Mixed, call make_options twice.
std::unique_ptr<Optimizer> make_optimizer(const std::string& name, const Parameters& parameters,
                                          const Json& values = Json::object());

}  // namespace prism
