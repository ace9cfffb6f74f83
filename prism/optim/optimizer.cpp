#include "prism/optim/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <unordered_set>

#include "prism/optim/cuda_step.h"
#include "prism/optim/gradients.h"
#include "prism/optim/prism.h"

namespace prism {

Parameters::Parameters(const torch::OrderedDict<std::string, Tensor>& named) {
  for (const auto& item : named) add(item.key(), item.value());
}

Parameters::Parameters(const std::vector<std::pair<std::string, Tensor>>& named) {
  for (const auto& [name, tensor] : named) add(name, tensor);
}

Parameters::Parameters(const std::vector<Tensor>& bare) : tensors(bare) {}

void Parameters::add(std::string name, Tensor tensor) {
  names.push_back(std::move(name));
  tensors.push_back(std::move(tensor));
}

Optimizer::Optimizer(std::unique_ptr<Options> defaults)
    : torch::optim::Optimizer(std::vector<torch::optim::OptimizerParamGroup>(), std::move(defaults)) {}

void Optimizer::add_param_group(const Parameters& parameters, const Options& options) {
  sync();  // names earlier groups first, so that theirs do not depend on this one
  for (size_t p = 0; p < parameters.names.size(); ++p) {
    TORCH_CHECK(parameters.tensors[p].defined(), "parameter '", parameters.names[p], "' is undefined");
  }
  add_param_group(torch::optim::OptimizerParamGroup(parameters.tensors, options.copy()));
  groups_.emplace_back().names = parameters.names;
  try {
    sync();
  } catch (...) {
    groups_.pop_back();
    param_groups_.pop_back();
    throw;
  }
}

void Optimizer::add_param_group(const torch::optim::OptimizerParamGroup& group) {
  torch::optim::Optimizer::add_param_group(group);
  if (group.has_options()) param_groups_.back().set_options(group.options().clone());
}

const Options& Optimizer::group_options(size_t group) const {
  const auto* options = dynamic_cast<const Options*>(&param_groups_.at(group).options());
  TORCH_CHECK(options != nullptr, "parameter group ", group,
              " must carry options of a prism optimizer, such as prism::PrismOptions, got another type");
  return *options;
}

std::vector<Tensor> Optimizer::group_state(size_t group, std::string_view field) const {
  sync();
  std::vector<Tensor> views(groups_.at(group).names.size());
  for (const auto& bucket : groups_[group].buckets) {
    const Tensor stack = bucket.state[field];
    for (size_t i = 0; stack.defined() && i < bucket.entries.size(); ++i) {
      if (bucket.entries[i].part < 0) views[bucket.entries[i].parameter] = stack[static_cast<int64_t>(i)];
    }
  }
  return views;
}

std::vector<std::vector<std::string>> Optimizer::names() const {
  sync();
  std::vector<std::vector<std::string>> all;
  for (const auto& group : groups_) all.push_back(group.names);
  return all;
}

void Optimizer::sync() const {
  at::NoGradGuard no_grad;  // masters are copies of weights
  size_t count = 0;
  std::unordered_set<std::string> seen_names;
  std::unordered_set<const void*> seen_tensors;
  groups_.resize(std::max(groups_.size(), param_groups_.size()));
  for (size_t g = 0; g < param_groups_.size(); ++g) {
    const auto& parameters = param_groups_[g].params();
    const Options& options = group_options(g);
    options.check();
    Group& group = groups_[g];
    for (size_t p = 0; p < parameters.size(); ++p, ++count) {
      if (p >= group.names.size()) group.names.push_back("parameter." + std::to_string(count));
      TORCH_CHECK(parameters[p].defined(), "parameter '", group.names[p], "' is undefined");
      TORCH_CHECK(seen_names.insert(group.names[p]).second, "two parameters are named '", group.names[p],
                  "'; names must be unique");
      TORCH_CHECK(seen_tensors.insert(parameters[p].unsafeGetTensorImpl()).second, "parameter '", group.names[p],
                  "' appears more than once; give each parameter to one group");
    }
    size_t known = 0;
    for (auto& bucket : group.buckets) {
      follow(bucket, options, parameters, group.names);
      for (const auto& entry : bucket.entries) known = std::max(known, entry.parameter + 1);
    }
    if (known == parameters.size()) continue;
    const std::vector<Tensor> fresh(parameters.begin() + static_cast<std::ptrdiff_t>(known), parameters.end());
    const std::vector<std::string> labels(group.names.begin() + static_cast<std::ptrdiff_t>(known), group.names.end());
    for (auto& bucket : make_buckets(options, fresh, labels, known)) group.buckets.push_back(std::move(bucket));
    if (!skipped_.defined()) skipped_ = at::zeros({}, fresh.front().options().dtype(at::kLong).requires_grad(false));
  }
}

std::vector<std::vector<Tensor>> Optimizer::gradients() const {
  std::vector<std::vector<Tensor>> all;
  for (size_t g = 0; g < param_groups_.size(); ++g) {
    auto& group = all.emplace_back();
    const auto& parameters = param_groups_[g].params();
    for (size_t p = 0; p < parameters.size(); ++p) {
      const Tensor& gradient = group.emplace_back(parameters[p].grad());
      TORCH_CHECK(!gradient.defined() || gradient.layout() == at::kStrided, group_options(g).name(),
                  ": the gradient of '", groups_[g].names[p], "' must be dense, got ", gradient.layout(),
                  "; make it dense first");
    }
  }
  return all;
}

Tensor Optimizer::finite_flag(const std::vector<std::vector<Tensor>>& gradients) const {
  std::vector<Tensor> present;
  bool guarded = false;
  for (size_t g = 0; g < gradients.size(); ++g) {
    guarded |= group_options(g).skip_nonfinite();
    for (const auto& gradient : gradients[g]) {
      if (gradient.defined()) present.push_back(gradient);
    }
  }
  if (!guarded || present.empty()) return {};
  return all_finite(present, skipped_.device());
}

void Optimizer::check_capture(const std::vector<std::vector<Tensor>>& gradients) const {
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].buckets.empty() || !is_capturing(groups_[g].buckets.front().device)) continue;
    TORCH_CHECK(group_options(g).capturable(), group_options(g).name(),
                ": a step can be captured into a graph with the option capturable, without which its learning rate "
                "would stay as it is now");
    for (size_t p = 0; p < gradients[g].size(); ++p) {
      TORCH_CHECK(gradients[g][p].defined(), group_options(g).name(), ": '", groups_[g].names[p],
                  "' has no gradient; a graph captured now would never update it");
    }
  }
}

void Optimizer::write_scalars() {
  at::NoGradGuard no_grad;
  sync();
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Options& options = group_options(g);
    Group& group = groups_[g];
    if (!options.capturable() || group.buckets.empty() || !group.buckets.front().device.is_cuda()) continue;
    const at::Device device = group.buckets.front().device;
    const auto write = [&](DeviceNumber& number, double value) {
      const bool there = number.value.defined() && number.value.device() == device;
      if (there && number.written == value) return;
      TORCH_CHECK(!is_capturing(device), options.name(),
                  ": take a step, or call write_scalars(), before a graph of it is captured");
      if (!there) number.value = at::empty({}, at::TensorOptions().dtype(at::kDouble).device(device));
      number.value.fill_(value);
      number.written = value;
    };
    write(group.lr, options.lr());
    if (const auto* prism = dynamic_cast<const PrismOptions*>(&options)) write(group.gamma, prism->gamma());
  }
}

Tensor Optimizer::step(LossClosure closure) {
  Tensor loss;
  if (closure != nullptr) {
    at::AutoGradMode enabled(true);
    loss = closure();
  }
  at::NoGradGuard no_grad;
  sync();
  const auto all = gradients();
  advance(all, finite_flag(all));
  return loss;
}

void Optimizer::step_if(const Tensor& apply) {
  at::NoGradGuard no_grad;
  sync();
  const auto all = gradients();
  const Tensor finite = finite_flag(all);
  advance(all, finite.defined() ? finite.logical_and(apply.to(finite.device())) : apply);
}

void Optimizer::advance(const std::vector<std::vector<Tensor>>& gradients, Tensor apply) {
  check_capture(gradients);
  write_scalars();
  if (apply.defined()) {
    if (skipped_.defined()) skipped_.add_(apply.logical_not().to(skipped_.device()));
    if (apply.is_cpu()) {  // nothing to wait for: decide here
      if (!apply.item<bool>()) return;
      apply = Tensor();
    }
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Options& options = group_options(g);
    const Group& group = groups_[g];
    const Tensor lr = group.lr.value.defined() ? group.lr.value : at::scalar_tensor(options.lr(), at::kDouble);
    step_group(options, groups_[g].buckets, param_groups_[g].params(), gradients[g],
               {.lr = lr, .apply = apply, .gamma = group.gamma.value});
  }
}

bool Optimizer::can_be_captured() const {
  at::NoGradGuard no_grad;
  sync();
  const auto all = gradients();
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Options& options = group_options(g);
    if (!options.can_be_captured() || !kernels_take(options, groups_[g].buckets, param_groups_[g].params(), all[g]))
      return false;
  }
  return true;
}

void Optimizer::step_group(const Options& options, std::vector<Bucket>& buckets, const std::vector<Tensor>& parameters,
                           const std::vector<Tensor>& gradients, const StepInputs& inputs) {
  const int64_t needed = step_buckets(options, buckets, parameters, gradients, inputs, workspace_);
  if (needed == 0) return;
  workspace_ = at::empty({needed}, at::TensorOptions().dtype(at::kByte).device(buckets.front().device));
  TORCH_INTERNAL_ASSERT(step_buckets(options, buckets, parameters, gradients, inputs, workspace_) == 0);
}

std::vector<MatrixSpectrum> bucket_spectra(const Options& options, const Bucket& bucket,
                                           const std::vector<std::string>& names, const std::vector<Tensor>& parameters,
                                           const std::vector<Tensor>& gradients) {
  std::vector<MatrixSpectrum> result;
  for (size_t i = 0; i < bucket.entries.size(); ++i) {
    if (!gradients.at(bucket.entries[i].parameter).defined()) continue;
    const Bucket one = single(bucket, i);
    const auto found = options.spectrum(stacked_gradients(options, one, gradients), one.state);
    if (!found) continue;
    const Tensor W = weights_of(options, one, parameters).front().reshape(bucket.shape);
    result.push_back({entry_name(names, bucket.entries[i]),
                      {found->singular_values[0], found->snr[0], found->gain[0], found->theory[0]},
                      at::linalg_vector_norm(W, 2, {-2, -1}, false, at::kDouble),
                      at::linalg_vector_norm(found->gain[0], 2, {-1})});  // ‖O‖: the directions span its rows
  }
  return result;
}

std::vector<MatrixSpectrum> Optimizer::spectra() const {
  at::NoGradGuard no_grad;
  sync();
  const auto all = gradients();
  std::vector<MatrixSpectrum> result;
  bool any_matrix = false;
  bool any_gradient = false;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Options& options = group_options(g);
    if (!options.takes_matrices()) continue;
    any_matrix |= !all[g].empty();
    for (const auto& gradient : all[g]) any_gradient |= gradient.defined();
    for (const auto& bucket : groups_[g].buckets) {
      auto some = bucket_spectra(options, bucket, groups_[g].names, param_groups_[g].params(), all[g]);
      result.insert(result.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
    }
  }
  TORCH_CHECK(any_gradient || !any_matrix, "spectra: no matrix has a gradient; call it between step() and zero_grad()");
  return result;
}

}  // namespace prism
