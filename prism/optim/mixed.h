#pragma once

#include "prism/optim/routing.h"

namespace prism {

// One optimizer for a whole model. Rules route its parameters to groups, each with the options of its own optimizer:
//   Mixed(model->named_parameters(), PrismOptions(0.005), AdamWOptions(0.005))
// sends the hidden matrices to PRISM and the rest to AdamW. Options that were not set have other defaults here
// (use_mixed_defaults): PRISM's averaged covariance, lightly damped, and AdamW's kMixedBetas.
// Each distinct options object of the rules becomes one parameter group: first those of matrix rules and of the last
// rule, then the others, in the order of the rules. Parameters keep their order within a group.
class Mixed : public Optimizer {
 public:
  Mixed(const Parameters& parameters, const Options& matrices, const Options& rest);

  // With `here`, this optimizer steps here[p] in place of each parameter p: the parameter itself, a tensor that shares the
  // memory of a part of it, or nothing if it is undefined. Other processes step the rest. Routing and groups are those of
  // all parameters, so a group may be empty.
  Mixed(const Parameters& parameters, const Rules& rules, const std::vector<Tensor>& here = {});

  const Routing& routing() const { return routing_; }

 private:
  Routing routing_;
};

}  // namespace prism
