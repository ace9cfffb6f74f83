#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "prism/optim/engine.h"

namespace prism {

// The part of a group's step that prism/cuda does: the buckets on a device with kernels that support their rule
// (kernel_rule.h), types and layout. They support float32 state and contiguous weights of at most 32 bits, and all
// spectral rules except a left side more than twice as long as the other.
//
// The matrix products run on fp16 operands with float32 accumulation. docs/accuracy.md lists their errors.
class CudaStep {
 public:
  // Returns scratch memory on a device, valid for launches until the next call.
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

// Returns true while work launched on this device is captured into a graph instead of run.
bool is_capturing(at::Device device);

}  // namespace prism
