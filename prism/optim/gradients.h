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
at::Tensor clip_grad_norm(const std::vector<at::Tensor>& parameters, double max_norm);

// The same for gradients of one type on `device`, or pieces of them: the norm is formed from the norms of the pieces.
// Other processes have the pieces that are undefined here. `combine` gets the norm of each piece, 0 for an undefined
// one, and adds those of the other processes; none if there are no others.
at::Tensor clip_pieces(const std::vector<at::Tensor>& pieces, double max_norm, at::Device device,
                       const std::function<void(at::Tensor&)>& combine = {});

}  // namespace prism
