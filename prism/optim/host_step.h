#pragma once

#include "prism/optim/engine.h"

namespace prism {

// Takes one step of a bucket on the CPU in one pass over gradients, state and weights: step_bucket() up to rounding. The
// bits do not depend on the number of threads. Returns false and changes nothing if this bucket has no such pass: it
// exists for Adam, AdamW, AdaGrad and RMSprop on contiguous weights, with gradients in the type of the weights and state
// in the type to compute in.
bool step_on_host(const Options& options, Bucket& bucket, const std::vector<Tensor>& parameters,
                  const std::vector<Tensor>& gradients, const StepInputs& inputs);

}  // namespace prism
