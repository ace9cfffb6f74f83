#pragma once

#include <memory>
#include <string>
#include <vector>

#include "prism/optim/optimizer.h"

namespace prism {

// What there is to say of an optimizer.
struct OptimizerInfo {
  std::string name;        // "tikhonovmuon": in options and configurations
  std::string class_name;  // "TikhonovMuon", here and in Python
  std::string label;       // "Tikhonov Muon": on pages and in tables
  std::string summary;     // one sentence
};
const std::vector<OptimizerInfo>& optimizers();

// The lower-case names of all of them.
const std::vector<std::string>& optimizer_names();

// The options of an optimizer, its defaults overridden by JSON: make_options("prism", {{"lr", 0.02}, {"gamma", 2}}).
std::unique_ptr<Options> make_options(const std::string& name, const Json& values = Json::object());

// An optimizer from its lower-case name. Mixed is built from two of make_options.
std::unique_ptr<Optimizer> make_optimizer(const std::string& name, const Parameters& parameters,
                                          const Json& values = Json::object());

}  // namespace prism
