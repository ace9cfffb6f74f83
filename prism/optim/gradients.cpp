#include "prism/optim/gradients.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <limits>
#include <map>

namespace prism {
namespace {

// Groups tensors by device and type, as foreach kernels need them.
std::vector<std::vector<at::Tensor>> by_kind(const std::vector<at::Tensor>& tensors) {
  std::map<std::pair<std::string, at::ScalarType>, std::vector<at::Tensor>> kinds;
  for (const auto& tensor : tensors) {
    if (tensor.numel() > 0) kinds[{tensor.device().str(), tensor.scalar_type()}].push_back(tensor);
  }
  std::vector<std::vector<at::Tensor>> lists;
  for (auto& [kind, list] : kinds) lists.push_back(std::move(list));
  return lists;
}

// The norm of each tensor, in float64 on `device`.
std::vector<at::Tensor> norms(const std::vector<at::Tensor>& tensors, double order, at::Device device) {
  std::vector<at::Tensor> result;
  for (const auto& list : by_kind(tensors)) {
    const auto each =
        at::_foreach_norm(list, order, list.front().scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
    result.push_back(at::stack(each).to(at::kDouble).to(device));
  }
  return result;
}

}  // namespace

at::Tensor all_finite(const std::vector<at::Tensor>& gradients, at::Device device) {
  at::Tensor largest = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(device));
  for (const auto& each : norms(gradients, std::numeric_limits<double>::infinity(), device))
    largest = largest + each.sum();
  return largest.isfinite();  // a NaN or infinite maximum makes the sum so; float64 cannot overflow here
}

at::Tensor clip_grad_norm(const std::vector<at::Tensor>& parameters, double max_norm,
                          const std::function<void(at::Tensor&)>& combine) {
  TORCH_CHECK_VALUE(max_norm > 0, "clip_grad_norm: max_norm must be more than 0, got ", max_norm);
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  std::vector<size_t> present;
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (!parameters[p].grad().defined()) continue;
    gradients.push_back(parameters[p].grad());
    present.push_back(p);
  }
  if (parameters.empty() || (gradients.empty() && !combine)) return at::zeros({}, at::kDouble);
  const auto device = (gradients.empty() ? parameters : gradients).front().device();
  at::Tensor squares = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(device));
  if (combine) {
    std::vector<at::Tensor> list(parameters.size(), squares);  // zeros for the gradients of others
    if (!gradients.empty()) {
      const auto own = norms(gradients, 2, device);
      TORCH_CHECK(own.size() == 1, "clip_grad_norm: expected gradients of one type and device, got several");
      for (size_t i = 0; i < present.size(); ++i) list[present[i]] = own.front()[static_cast<int64_t>(i)];
    }
    at::Tensor each = at::stack(list);
    combine(each);
    squares = squares + each.square().sum();
  } else {
    for (const auto& each : norms(gradients, 2, device)) squares = squares + each.square().sum();
  }
  const at::Tensor norm = squares.sqrt();
  const at::Tensor factor = (max_norm / norm).clamp_max(1).masked_fill(norm.isfinite().logical_not(), 1);
  for (auto& list : by_kind(gradients)) {
    at::_foreach_mul_(list, factor.to(list.front().device()).to(list.front().scalar_type()));
  }
  return norm;
}

}  // namespace prism
