#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace prism {

// A boolean on `device`: whether every element of every gradient is finite. Makes no host synchronisation.
at::Tensor all_finite(const std::vector<at::Tensor>& gradients, at::Device device);

// Scales the gradients of the parameters in place so that their joint 2-norm is at most max_norm, and returns the norm
// they had, as a float64 number on the device of the first: nothing waits for the device. A non-finite norm scales
// nothing: clipping by it would poison every gradient, and `skip_nonfinite` must still see what came.
at::Tensor clip_grad_norm(const std::vector<at::Tensor>& parameters, double max_norm);

}  // namespace prism
