#include "prism/optim/gradients.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
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

void check_norm(double max_norm) {
  TORCH_CHECK_VALUE(max_norm > 0, "clip_grad_norm: max_norm must be more than 0, got ", max_norm);
}

// Scales gradients of this joint norm, which it returns.
at::Tensor clip_to(const std::vector<at::Tensor>& gradients, const at::Tensor& norm, double max_norm) {
  const at::Tensor factor = (max_norm / norm).clamp_max(1).masked_fill(norm.isfinite().logical_not(), 1);
  for (auto& list : by_kind(gradients)) {
    at::_foreach_mul_(list, factor.to(list.front().device()).to(list.front().scalar_type()));
  }
  return norm;
}

}  // namespace

at::Tensor all_finite(const std::vector<at::Tensor>& gradients, at::Device device) {
  at::Tensor largest = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(device));
  for (const auto& each : norms(gradients, std::numeric_limits<double>::infinity(), device))
    largest = largest + each.sum();
  return largest.isfinite();  // a NaN or infinite maximum makes the sum so; float64 cannot overflow here
}

at::Tensor clip_grad_norm(const std::vector<at::Tensor>& parameters, double max_norm) {
  check_norm(max_norm);
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  if (gradients.empty()) return at::zeros({}, at::kDouble);
  const auto device = gradients.front().device();
  at::Tensor squares = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(device));
  for (const auto& each : norms(gradients, 2, device)) squares = squares + each.square().sum();
  return clip_to(gradients, squares.sqrt(), max_norm);
}

at::Tensor clip_pieces(const std::vector<at::Tensor>& pieces, double max_norm, at::Device device,
                       const std::function<void(at::Tensor&)>& combine) {
  check_norm(max_norm);
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> here;
  for (const auto& piece : pieces) {
    if (piece.defined()) here.push_back(piece);
  }
  const auto own = norms(here, 2, device);
  TORCH_CHECK(own.size() <= 1, "clip_pieces: expected gradients of one type and device, got several");
  const at::Tensor zero = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(device));
  std::vector<at::Tensor> list;
  int64_t next = 0;
  for (const auto& piece : pieces) list.push_back(piece.defined() ? own.front()[next++] : zero);
  at::Tensor each = at::stack(list);
  if (combine) combine(each);
  return clip_to(here, (zero + each.square().sum()).sqrt(), max_norm);
}

}  // namespace prism
