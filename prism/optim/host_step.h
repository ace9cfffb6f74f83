#pragma once

#include "prism/optim/engine.h"

namespace prism {

// Takes one step of a bucket on the CPU in one pass over gradients, state and weights, with the same bits as
// step_bucket(). Returns false and changes nothing if this bucket has no such pass: it exists for Adam and AdamW on
// contiguous weights, with gradients in the type of the weights and state in the type to compute in.
bool step_on_host(const Options& options, Bucket& bucket, const std::vector<Tensor>& parameters,
                  const std::vector<Tensor>& gradients, const StepInputs& inputs);

}  // namespace prism
