#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "prism/cuda/launch.h"
#include "prism/optim/bucket.h"

namespace prism {

// The part of a group's step that prism/cuda does: the buckets on a device with kernels whose rule, types and layout
// they know. Prism with instant or averaged covariance (refreshed at every step), Muon and TikhonovMuon (relative
// damping) with solver gram, one side, rows as they are and polynomials of degree 5 or 9, except a left side more than
// twice as long as the other; AdamW, Adam, AdaGrad and RMSprop; float32 state, contiguous weights of at most 32 bits.
//
// The matrix products run on fp16 operands with float32 accumulation (Precision::Split): docs/accuracy.md has their
// errors.
class CudaStep {
 public:
  CudaStep(const Options& options, const std::vector<Bucket>& buckets, const std::vector<Tensor>& parameters,
           const std::vector<Tensor>& gradients, const StepInputs& inputs);
  ~CudaStep();

  bool takes(size_t bucket) const { return taken_[bucket]; }
  int64_t workspace_bytes() const;    // on each device the largest any of the buckets there needs
  void run(const Tensor& workspace);  // of bytes, on the device of the buckets

 private:
  struct Work;
  std::vector<bool> taken_;
  std::unique_ptr<Work> work_;
};

// The rule of an optimizer of matrices as the kernels know it; nothing where they have none for these options.
std::optional<cuda::SpectralRule> spectral_rule(const Options& options);

// Whether a step on this device would be captured into a graph instead of run.
bool is_capturing(at::Device device);

}  // namespace prism
