#pragma once

// The whole step of a thin matrix in one thread block: thousands of them take one launch, and gradients, momenta and
// weights are read once. Gram matrices and the iteration are as accurate as float32; the update is formed from T in fp16.

#include <vector>

#include "prism/cuda/iteration.h"
#include "prism/cuda/signal.h"

namespace prism::cuda {

// The scratch memory of launch_thin.
int64_t thin_bytes(const std::vector<const MatrixStack*>& stacks);

// Takes one step of all the stacks, for which is_thin holds (steps.h). Step counters include this step. If momenta are
// null, there is one stack: its gradients are the operands T, in float32, and D holds those of all its matrices, one after
// the other, or is null if the step does not need them.
cudaError_t launch_thin(const SpectralRule& rule, const StepScalars& scalars, const Iteration& iteration,
                        const std::vector<const MatrixStack*>& stacks, const float* D, void* scratch, int device,
                        cudaStream_t stream);

// Writes M ← βM + (1−β)G, and T and D of each part in float32, one after the other (steps.h, form_operands).
cudaError_t launch_thin_operands(const SpectralRule& rule, const MatrixStack& parts, float* T, float* D,
                                 cudaStream_t stream);

}  // namespace prism::cuda
