#pragma once

#include "prism/optim/routing.h"

namespace prism {

// One optimizer over a whole model: its parameters are routed by rules to groups, each with its own optimizer's
// options.
//   Mixed(model->named_parameters(), PrismOptions(0.02), AdamWOptions(0.005))
// sends the hidden matrices to PRISM and the rest to AdamW.
// AdamW whose betas were not set has kMixedBetas here.
// Each distinct options object of the rules becomes one parameter group: first those of matrix rules and of the last
// rule, then the others, each in the order of the rules; parameters are taken as they come.
class Mixed : public Optimizer {
 public:
  Mixed(const Parameters& parameters, const Options& matrices, const Options& rest);
  Mixed(const Parameters& parameters, const Rules& rules);

  const Routing& routing() const { return routing_; }

 private:
  Routing routing_;
};

}  // namespace prism
