#include "prism/optim/optimizer.h"

#include <ATen/core/grad_mode.h>

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
  for (size_t p = 0; p < parameters.names.size(); ++p) {
    TORCH_CHECK(parameters.tensors[p].defined(), "parameter '", parameters.names[p], "' is undefined");
  }
  torch::optim::Optimizer::add_param_group(torch::optim::OptimizerParamGroup(parameters.tensors, options.copy()));
  param_groups_.back().set_options(options.copy());
  const size_t index = param_groups_.size() - 1;
  try {
    engine_.set_group(index, group_options(index), parameters.tensors, parameters.names);
    make_state();
  } catch (...) {
    engine_.resize(index);
    param_groups_.pop_back();
    throw;
  }
}

void Optimizer::add_param_group(const torch::optim::OptimizerParamGroup& group) {
  torch::optim::Optimizer::add_param_group(group);
  if (group.has_options()) param_groups_.back().set_options(group.options().clone());
  try {
    make_state();
  } catch (...) {
    engine_.resize(param_groups_.size() - 1);
    param_groups_.pop_back();
    throw;
  }
}

const Options& Optimizer::group_options(size_t group) const {
  const auto* options = dynamic_cast<const Options*>(&param_groups_.at(group).options());
  TORCH_CHECK(options != nullptr, "parameter group ", group,
              " must carry options of a prism optimizer, such as prism::PrismOptions, got another type");
  return *options;
}

void Optimizer::follow_groups() {
  for (size_t g = 0; g < param_groups_.size(); ++g) {
    const auto& parameters = param_groups_[g].params();
    const bool is_known = g < engine_.groups().size();
    for (size_t p = 0; is_known && p < engine_.groups()[g].parameters.size(); ++p) {
      TORCH_CHECK(p < parameters.size() && parameters[p].is_same(engine_.groups()[g].parameters[p]), "parameter '",
                  engine_.groups()[g].names[p], "' was removed from its group or replaced; create a new optimizer");
    }
    engine_.set_group(g, group_options(g), parameters, {});
  }
  engine_.resize(param_groups_.size());
}

void Optimizer::make_state() {
  follow_groups();
  engine_.make_state();
}

const Engine& Optimizer::engine() const {
  TORCH_CHECK(engine_.groups().size() == param_groups_.size(), "parameter group ", engine_.groups().size(),
              " has no state yet; call step() or make_state() first");
  return engine_;
}

std::vector<Tensor> Optimizer::group_state(size_t group, std::string_view field) const {
  std::vector<Tensor> views(engine().groups().at(group).names.size());
  for (const auto& bucket : engine().groups()[group].buckets) {
    const Tensor stack = bucket.state[field];
    for (size_t i = 0; stack.defined() && i < bucket.entries.size(); ++i) {
      if (bucket.entries[i].part < 0) views[bucket.entries[i].parameter] = stack[static_cast<int64_t>(i)];
    }
  }
  return views;
}

std::vector<std::vector<std::string>> Optimizer::names() const {
  std::vector<std::vector<std::string>> all;
  for (const auto& group : engine().groups()) all.push_back(group.names);
  return all;
}

Tensor Optimizer::step(LossClosure closure) {
  Tensor loss;
  if (closure != nullptr) {
    at::AutoGradMode enabled(true);
    loss = closure();
  }
  make_state();
  engine_.step({});
  return loss;
}

void Optimizer::step_if(const Tensor& apply, const std::function<void(const Tensor&)>& written) {
  make_state();
  engine_.step({.apply = apply, .written = written});
}

void Optimizer::write_scalars() {
  make_state();
  engine_.write_scalars();
}

void Optimizer::restore(const Snapshot& snapshot) {
  make_state();
  auto restored = engine_.restore(snapshot);
  for (size_t g = 0; g < restored.size(); ++g) param_groups_[g].set_options(std::move(restored[g].options));
  follow_groups();
}

}  // namespace prism
