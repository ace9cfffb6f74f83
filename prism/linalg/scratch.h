#pragma once

#include "prism/linalg/batch.h"

namespace prism {

// While an object of this class lives, the functions below and products on its thread reuse the memory of tensors that
// are gone. malloc would return large blocks to the system, and the kernel would clear their pages again for the next
// matrix.
class ScratchScope {
 public:
  ScratchScope();
  ~ScratchScope();
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;
};

// A tensor with undefined content. Its memory is reused within a ScratchScope if it is on the CPU.
Tensor scratch(at::IntArrayRef shape, const at::TensorOptions& options);

// Copies of X and of factor·X in scratch memory.
Tensor scratch_copy(const Tensor& X);
Tensor scaled(const Tensor& X, double factor);

}  // namespace prism
