#pragma once

#include <functional>
#include <memory>
#include <optional>
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

// The type of the operands of a bucket that several processes share, if the kernels form them and shape its matrices. All
// of these processes get the same answer.
std::optional<at::ScalarType> kernel_operands(const Options& options, const Bucket& bucket);

// The stages `operands` and `shape` of such a bucket, in place of Options::operands and Options::direction. T and D are
// fp16, multiplied by powers of two on which the processes agree, or float32 for thin matrices.
class SharedCudaStep {
 public:
  SharedCudaStep(const Options& options, const Bucket& bucket);
  ~SharedCudaStep();

  // Advances the momentum in `state` with gradients G (B, parts…), and returns the operands of this process's parts,
  // (B, elements). D is undefined if this step does not need it. All processes call it together.
  Operands operands(const Tensor& G, const State& state);

  // Returns the updates of the entries `owned` of B, from whole operands (entries, …, m, n) and their state.
  Tensor shape(const Operands& whole, const State& state, const std::vector<int64_t>& owned) const;

 private:
  struct Work;
  std::unique_ptr<Work> work_;
};

// Returns true while work launched on this device is captured into a graph instead of run.
bool is_capturing(at::Device device);

}  // namespace prism
