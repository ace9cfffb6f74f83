#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "prism/optim/engine.h"

namespace prism {

// The part of a group's step that prism/cuda does: the buckets on a device with kernels whose rule (kernel_rule.h),
// types and layout they know. Of spectral rules all but a left side more than twice as long as the other; float32
// state, contiguous weights of at most 32 bits.
//
// The matrix products run on fp16 operands with float32 accumulation: docs/accuracy.md has their errors.
class CudaStep {
 public:
  // Scratch memory on a device, for what is launched until the next call.
  using Allocate = std::function<void*(size_t bytes, at::Device device)>;

  CudaStep(const Options& options, const std::vector<Bucket>& buckets, const std::vector<Tensor>& parameters,
           const std::vector<Tensor>& gradients, const StepInputs& inputs);
  ~CudaStep();

  bool takes(size_t bucket) const { return taken_[bucket]; }
  void run(const Allocate& allocate) const;

 private:
  struct Work;
  std::vector<bool> taken_;
  std::unique_ptr<Work> work_;
};

// Whether a step on this device would be captured into a graph instead of run.
bool is_capturing(at::Device device);

}  // namespace prism
