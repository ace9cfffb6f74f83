#include "prism/train/norms.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "prism/cuda/matrix_norms.h"
#include "prism/cuda/steps.h"
#include "prism/optim/spectral.h"

namespace prism::train {
namespace {

constexpr size_t kMatrices = 0;  // Mixed's first group

// "model.layers.3.self_attn.q_proj.weight" → "q_proj".
std::string type_of(std::string name) {
  if (name.ends_with(".weight")) name.resize(name.size() - std::string(".weight").size());
  return name.substr(name.rfind('.') + 1);
}

std::optional<Momentum> momentum_of(const Mixed& optimizer) {
  return optimizer.group_options(kMatrices).momentum_rule();
}

bool fits_kernels(const Tensor& x) {
  return x.scalar_type() == at::kFloat && x.is_contiguous() && x.numel() % 4 == 0 &&
         reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

}  // namespace

NormMeter::NormMeter(const Mixed& optimizer, at::Device device, dist::Communicator& processes, bool owned)
    : optimizer_(optimizer), processes_(processes), owned_(owned), has_momentum_(momentum_of(optimizer).has_value()) {
  const auto names = optimizer.names().at(kMatrices);
  const auto& rules = optimizer.routing().rules();
  std::vector<std::vector<std::string>> matrices;  // of each type
  int64_t count = 0;
  for (const auto& line : optimizer.routing().lines()) {
    if (rules[line.rule].options != rules.back().options) continue;
    const auto type = type_of(line.name);
    size_t t = 0;
    while (t < types_.size() && types_[t].name != type) ++t;
    if (t == types_.size()) {
      types_.push_back({type, has_momentum_ ? scale_factor(momentum_of(optimizer)->scale, line.shape) : 1});
      matrices.emplace_back();
    }
    matrices[t].push_back(line.name);
    ++count;
  }
  members_ = at::zeros({static_cast<int64_t>(types_.size()), count}, at::kDouble);
  int64_t column = 0;
  for (size_t t = 0; t < types_.size(); ++t) {
    for (const auto& name : matrices[t]) {
      members_[static_cast<int64_t>(t)][column].fill_(1);
      if (const auto found = std::find(names.begin(), names.end(), name); found != names.end()) {
        places_.push_back(static_cast<size_t>(found - names.begin()));
        columns_.push_back(static_cast<size_t>(column));
      }
      ++column;
    }
  }
  members_ = members_.to(device);
  const auto& parameters = optimizer.param_groups()[kMatrices].params();
  keep_ = at::empty(
      {},
      (parameters.empty() ? at::TensorOptions() : parameters.front().options().requires_grad(false)).device(device));
}

int64_t NormMeter::size() const { return (has_momentum_ ? kD + 1 : kW + 1) * static_cast<int64_t>(types_.size()); }

std::vector<Tensor> NormMeter::ordered(const std::vector<Tensor>& of_group) const {
  std::vector<Tensor> list;
  for (const size_t place : places_) list.push_back(of_group[place]);
  return list;
}

void NormMeter::set_rate(double lr) {
  const Options& options = optimizer_.group_options(kMatrices);
  lr_ = lr;
  keep_.fill_(options.couples_decay() ? 1 : 1 - lr * options.weight_decay());
}

void NormMeter::before() {
  const at::NoGradGuard no_grad;
  if (places_.empty()) return;
  decayed_ = at::_foreach_mul(ordered(optimizer_.param_groups()[kMatrices].params()), keep_);
}

// 1 − βᵗ, undefined without bias correction.
Tensor NormMeter::momentum_divisor() const {
  const Momentum momentum = *momentum_of(optimizer_);
  if (!momentum.bias_correction) return {};
  const Tensor step = optimizer_.group_state(kMatrices, "step").front();  // the same for all matrices
  return 1 - at::pow(momentum.beta, step.to(at::kDouble));
}

std::vector<Tensor> NormMeter::momenta() const {
  const auto M = ordered(optimizer_.group_state(kMatrices, "momentum"));
  const Tensor divisor = momentum_divisor();
  return divisor.defined() ? at::_foreach_div(M, divisor.to(M.front().scalar_type())) : M;
}

// Returns nothing if the kernels do not support these matrices.
std::optional<Tensor> NormMeter::norms_by_kernels(const std::vector<Tensor>& W, const std::vector<Tensor>& G) const {
  const auto device = W.front().device();
  if (!device.is_cuda() || !cuda::available(device.index())) return std::nullopt;
  const auto M = has_momentum_ ? ordered(optimizer_.group_state(kMatrices, "momentum")) : std::vector<Tensor>();
  std::vector<cuda::MeasuredMatrix> matrices;
  for (size_t i = 0; i < W.size(); ++i) {
    if (!fits_kernels(W[i]) || !fits_kernels(G[i]) || !fits_kernels(decayed_[i])) return std::nullopt;
    if (has_momentum_ && !fits_kernels(M[i])) return std::nullopt;
    matrices.push_back({.elements = W[i].numel(),
                        .G = G[i].const_data_ptr<float>(),
                        .W = W[i].const_data_ptr<float>(),
                        .decayed = decayed_[i].const_data_ptr<float>(),
                        .M = has_momentum_ ? M[i].const_data_ptr<float>() : nullptr});
  }
  const Tensor divisor = has_momentum_ ? momentum_divisor() : Tensor();
  const Tensor c = divisor.defined() ? divisor.to(at::kFloat) : divisor;
  const auto options = W.front().options().dtype(at::kDouble).requires_grad(false);
  Tensor scratch;
  const auto allocate = [&](size_t bytes) {
    scratch = at::empty({static_cast<int64_t>(bytes)}, options.dtype(at::kByte));
    return scratch.mutable_data_ptr();
  };
  const Tensor norms = at::empty({cuda::kNorms, static_cast<int64_t>(W.size())}, options);
  auto* stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
  const int error = cuda::measure_norms(matrices, c.defined() ? c.const_data_ptr<float>() : nullptr, allocate,
                                        norms.mutable_data_ptr<double>(), device.index(), stream);
  TORCH_CHECK(error == 0, "train: the kernel of the norms could not be launched: ", cuda::error_text(error));
  return norms.narrow(0, 0, has_momentum_ ? kD + 1 : kW + 1);
}

// The norms of the matrices that are stepped here, (quantities, matrices).
Tensor NormMeter::norms_here() {
  const auto W = ordered(optimizer_.param_groups()[kMatrices].params());
  std::vector<Tensor> G, norms;
  for (const auto& weight : W) G.push_back(weight.grad());
  if (const auto fast = norms_by_kernels(W, G)) {
    decayed_.clear();
    return *fast;
  }
  const auto measure = [&](const std::vector<Tensor>& matrices) {
    const auto type = matrices.front().scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    norms.push_back(at::stack(at::_foreach_norm(matrices, 2, type)).to(at::kDouble));
  };
  measure(G);
  at::_foreach_sub_(decayed_, W);
  measure(decayed_);
  decayed_.clear();  // makes room for the innovations
  measure(W);
  if (has_momentum_) {
    const auto M = momenta();
    measure(M);
    measure(at::_foreach_sub(G, M));
  }
  return at::stack(norms);
}

Tensor NormMeter::after() {
  const at::NoGradGuard no_grad;
  Tensor norms;
  if (!owned_) {
    norms = norms_here();
  } else {  // zeros for the matrices of others, so that the sum is exact
    const Tensor none = at::zeros({size() / static_cast<int64_t>(types_.size())}, members_.options());
    std::vector<Tensor> columns(static_cast<size_t>(members_.size(1)), none);
    const Tensor here = places_.empty() ? Tensor() : norms_here();
    for (size_t i = 0; i < columns_.size(); ++i) columns[columns_[i]] = here.select(1, static_cast<int64_t>(i));
    norms = at::stack(columns, 1);
    processes_.sum(norms);
  }
  return norms.square().unsqueeze(1).mul(members_).sum(-1).sqrt().flatten();
}

std::map<std::string, MatrixNorms> NormMeter::read(const Tensor& values) const {
  const Tensor host = values.cpu();
  const auto at = [&](Quantity quantity, size_t type) {
    return host.const_data_ptr<double>()[quantity * types_.size() + type];
  };
  std::map<std::string, MatrixNorms> result;
  for (size_t t = 0; t < types_.size(); ++t) {
    auto& norms = result[types_[t].name] = {.G = at(kG, t), .W = at(kW, t)};
    if (has_momentum_) norms.M = at(kM, t), norms.D = at(kD, t);
    if (lr_ > 0) norms.O = at(kO, t) / (lr_ * types_[t].scale);
  }
  return result;
}

}  // namespace prism::train
