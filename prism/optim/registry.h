#pragma once

#include <memory>
#include <string>
#include <vector>

#include "prism/optim/optimizer.h"

namespace prism {

// The lower-case names of all optimizers: "prism", "muon", "adamw", …
const std::vector<std::string>& optimizer_names();

// The options of an optimizer, its defaults overridden by JSON: make_options("prism", {{"lr", 0.02}, {"gamma", 2}}).
std::unique_ptr<Options> make_options(const std::string& name, const Json& values = Json::object());

// An optimizer from its lower-case name. Mixed is built from two of make_options.
std::unique_ptr<Optimizer> make_optimizer(const std::string& name, const Parameters& parameters,
                                          const Json& values = Json::object());

}  // namespace prism
