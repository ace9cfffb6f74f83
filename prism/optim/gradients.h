#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace prism {

// Returns a boolean on `device`: true if every element of every gradient is finite. Does not synchronize with the host.
at::Tensor all_finite(const std::vector<at::Tensor>& gradients, at::Device device);

// Scales the gradients of the parameters in place so that their joint 2-norm is at most max_norm. Returns the norm
// before scaling, as a float64 scalar on the device of the first, without waiting for the device. A non-finite norm
// scales nothing: clipping by it would poison every gradient, and `skip_nonfinite` must see the original gradients.
//
// With `combine`, other processes have the gradients that are undefined here. It gets the norm of each gradient, 0 for an
// undefined one, and adds those of the other processes.
at::Tensor clip_grad_norm(const std::vector<at::Tensor>& parameters, double max_norm,
                          const std::function<void(at::Tensor&)>& combine = {});

}  // namespace prism
