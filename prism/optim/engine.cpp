#include "prism/optim/engine.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_set>

#include "prism/optim/cuda_step.h"
#include "prism/optim/kernel_rule.h"

namespace prism {
namespace {

bool same_tensors(const std::vector<Tensor>& left, const std::vector<Tensor>& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](const Tensor& a, const Tensor& b) { return a.is_same(b); });
}

// Returns true if a group's buckets no longer match its parameters, their types or devices, or the state that its
// options need.
bool is_stale(const Engine::Group& group) {
  if (!same_tensors(group.known, group.parameters)) return true;
  for (const auto& bucket : group.buckets) {
    check_parts(bucket, *group.options, group.parameters, group.names, group.layouts);
    if (!has_state(bucket, *group.options)) return true;
    for (const auto& entry : bucket.entries) {
      const Tensor& parameter = group.parameters[entry.parameter];
      if (parameter.scalar_type() != bucket.type || parameter.device() != bucket.device) return true;
    }
  }
  return false;
}

// Copies the state of the parameters of `fresh` from `old`. A field that only `fresh` has keeps its initial value.
void take_over(std::vector<Bucket>& fresh, const Engine::Group& old, const std::vector<Tensor>& parameters,
               const std::vector<std::string>& names) {
  std::map<std::pair<const void*, std::string>, Tensor> present;
  for (const auto& bucket : old.buckets) {
    each_field(bucket, [&](const Bucket::Entry& entry, const std::string& field, const Tensor& view) {
      present[{old.known[entry.parameter].unsafeGetTensorImpl(), field_name(entry, field)}] = view;
    });
  }
  for (const auto& bucket : fresh) {
    each_field(bucket, [&](const Bucket::Entry& entry, const std::string& field, const Tensor& target) {
      const auto found = present.find({parameters[entry.parameter].unsafeGetTensorImpl(), field_name(entry, field)});
      if (found == present.end()) return;
      TORCH_CHECK_VALUE(found->second.sizes() == target.sizes(), "state '", found->first.second, "' of '",
                        names[entry.parameter], "' is of shape ", found->second.sizes(),
                        ", but its present options ask for ", target.sizes(),
                        "; set options that change the shape of state when you create the optimizer");
      target.copy_(found->second);
    });
  }
}

}  // namespace

void Engine::set_group(size_t index, const Options& options, const std::vector<Tensor>& parameters,
                       const std::vector<std::string>& names, const std::vector<LayoutPtr>& layouts) {
  if (index >= groups_.size()) groups_.resize(index + 1);
  Group& group = groups_[index];
  group.options = &options;
  if (!same_tensors(group.parameters, parameters)) group.parameters = parameters;
  if (group.layouts != layouts) group.layouts = layouts;
  if (group.names != names && !names.empty()) group.names = names;
}

void Engine::check_parameters() const {
  std::unordered_set<std::string> names;
  std::unordered_set<const void*> tensors;
  for (const auto& group : groups_) {
    for (size_t p = 0; p < group.parameters.size(); ++p) {
      const auto& name = group.names[p];
      TORCH_CHECK(group.parameters[p].defined(), "parameter '", name, "' is undefined");
      TORCH_CHECK_VALUE(names.insert(name).second, "two parameters are named '", name, "'; names must be unique");
      TORCH_CHECK_VALUE(tensors.insert(group.parameters[p].unsafeGetTensorImpl()).second, "parameter '", name,
                        "' appears more than once; give each parameter to one group");
    }
  }
}

std::vector<size_t> Engine::make_state() {
  at::NoGradGuard no_grad;  // masters are copies of weights
  std::vector<size_t> stale;
  size_t count = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    group.options->check();
    for (size_t p = group.names.size(); p < group.parameters.size(); ++p)
      group.names.push_back("parameter." + std::to_string(count + p));
    group.names.resize(group.parameters.size());
    count += group.parameters.size();
    if (is_stale(group)) stale.push_back(g);
  }
  if (stale.empty()) return stale;
  check_parameters();
  if (!exchanges().empty()) {
    // Before the first step nobody owns anything worth keeping: distribute all matrices anew.
    if (!has_begun_) {
      stale.resize(groups_.size());
      std::iota(stale.begin(), stale.end(), size_t{0});
    }
    plan_is_checked_ = false;
  }
  std::vector<std::vector<Bucket>> fresh(groups_.size());
  for (const size_t g : stale) {
    const Group& group = groups_[g];
    fresh[g] = make_buckets(*group.options, group.parameters, group.names, group.layouts);
  }
  if (!exchanges().empty()) {
    std::vector<const Options*> options;
    for (const auto& group : groups_) options.push_back(group.options);
    choose_owners(fresh, options, /*keep=*/has_begun_);
  }
  for (const size_t g : stale) take_over(fresh[g], groups_[g], groups_[g].parameters, groups_[g].names);
  for (const size_t g : stale) {
    groups_[g].buckets = std::move(fresh[g]);
    groups_[g].known = groups_[g].parameters;
  }
  for (const auto& group : groups_) {
    if (group.parameters.empty()) continue;
    const auto device = group.parameters.front().device();
    skipped_ = skipped_.defined() ? skipped_.to(device) : at::zeros({}, at::TensorOptions(at::kLong).device(device));
    break;
  }
  return stale;
}

void Engine::write_scalars() {
  at::NoGradGuard no_grad;
  for (auto& group : groups_) {
    const Options& options = *group.options;
    if (!options.capturable() || group.buckets.empty() || !group.buckets.front().device.is_cuda()) continue;
    const at::Device device = group.buckets.front().device;
    const auto write = [&](Group::DeviceNumber& number, double value) {
      if (number.given.defined()) return;
      const bool there = number.own.defined() && number.own.device() == device;
      if (there && number.written == value) return;
      TORCH_CHECK(!is_capturing(device), options.name(),
                  ": take a step, or call write_scalars(), before you capture a graph of it");
      if (!there) number.own = at::empty({}, at::TensorOptions().dtype(at::kDouble).device(device));
      number.own.fill_(value);
      number.written = value;
    };
    write(group.lr, options.lr());
    const auto rule = options.kernel_rule();
    const auto* spectral = rule ? std::get_if<SpectralKernel>(rule.get()) : nullptr;
    if (spectral != nullptr && spectral->rule.noisy) write(group.gamma, spectral->rule.gamma.value);
  }
}

bool Engine::can_be_captured() const {
  const auto gradients = collect();
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    if (!group.options->can_be_captured()) return false;
    const CudaStep kernels(*group.options, group.buckets, group.parameters, gradients[g], {});
    for (size_t b = 0; b < group.buckets.size(); ++b) {
      if (!kernels.takes(b) && has_gradient(group.buckets[b], gradients[g])) return false;
    }
  }
  return true;
}

std::vector<std::pair<std::string, Tensor>> Engine::state_of(size_t group, size_t parameter) const {
  std::vector<std::pair<std::string, Tensor>> views;
  for (const auto& bucket : groups_.at(group).buckets) {
    each_field(bucket, [&](const Bucket::Entry& entry, const std::string& field, const Tensor& view) {
      if (entry.parameter == parameter) views.emplace_back(field_name(entry, field), view);
    });
  }
  return views;
}

// Calls f(view, value) with the initial value of each field of a parameter.
template <class Function>
void Engine::each_initial(size_t group, size_t parameter, const Function& f) const {
  at::NoGradGuard no_grad;
  const Group& here = groups_.at(group);
  for (const auto& bucket : here.buckets) {
    std::map<std::string, double> initial;
    for (const auto& field : here.options->fields(whole_shape(*here.options, bucket)))
      initial[field.name] = field.initial;
    each_field(bucket, [&](const Bucket::Entry& entry, const std::string& field, const Tensor& view) {
      if (entry.parameter != parameter) return;
      if (field != "master") {
        f(view, at::scalar_tensor(initial.at(field), view.options()));
        return;
      }
      f(view, part_of(*here.options, bucket, entry, here.parameters).reshape(bucket.shape));
    });
  }
}

void Engine::reset_state(size_t group, size_t parameter) {
  each_initial(group, parameter, [](const Tensor& view, const Tensor& value) { view.copy_(value); });
}

bool Engine::has_initial_state(size_t group, size_t parameter) const {
  bool is_initial = true;
  each_initial(group, parameter, [&](const Tensor& view, const Tensor& value) {
    is_initial = is_initial && view.eq(value).all().item<bool>();
  });
  return is_initial;
}

std::vector<MatrixSpectrum> Engine::spectra(const Tensor& grad_scale) const {
  at::NoGradGuard no_grad;
  auto gradients = collect();
  std::vector<MatrixSpectrum> result;
  bool any_matrix = false;
  bool any_gradient = false;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto& [options, parameters, names, layouts, buckets, known, lr, gamma] = groups_[g];
    if (!options->takes_matrices()) continue;
    any_matrix |= !parameters.empty();
    for (auto& gradient : gradients[g]) {
      any_gradient |= gradient.defined();
      if (grad_scale.defined() && gradient.defined()) gradient = gradient / grad_scale.to(gradient.device());
    }
    for (const auto& bucket : buckets) {
      TORCH_CHECK(!bucket.layout, "spectra: '", names[bucket.entries.front().parameter],
                  "' is shaped by one process for all; inspect a run of one process");
      for (size_t i = 0; i < bucket.entries.size(); ++i) {
        const auto& entry = bucket.entries[i];
        if (!gradients[g][entry.parameter].defined()) continue;
        const Bucket one = single(bucket, i);
        const auto found = options->spectrum(stacked_gradients(*options, one, gradients[g]), one.state);
        if (!found) continue;
        const Tensor W = part_of(*options, bucket, entry, parameters).reshape(bucket.shape);
        const auto part = entry.part < 0 ? "" : ".split." + std::to_string(entry.part);
        result.push_back(
            {names[entry.parameter] + part,
             {found->singular_values[0], found->snr[0], found->gain[0], found->theory[0], found->augmented[0]},
             at::linalg_vector_norm(W, 2, {-2, -1}, false, at::kDouble),
             at::linalg_vector_norm(found->gain[0], 2, {-1})});  // ‖O‖: the directions span its rows
      }
    }
  }
  TORCH_CHECK(any_gradient || !any_matrix, "spectra: no matrix has a gradient; call it between step() and zero_grad()");
  return result;
}

}  // namespace prism
