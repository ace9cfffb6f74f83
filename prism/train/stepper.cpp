#include "prism/train/stepper.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "prism/optim/gradients.h"
#include "prism/train/config.h"

namespace prism::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kOwnResults = 2;  // loss and gradient norm

Mixed make_optimizer(const io::Config& config, const model::Qwen2& model) {
  const auto pair = optimizer_options(config);
  return {model.named_parameters(), *pair.matrices, *pair.rest};
}

}  // namespace

Stepper::Stepper(const io::Config& config, model::Qwen2 model)
    : context_(config.integer("train.context")),
      batch_(config.integer("train.batch")),
      accumulate_(config.integer("train.accumulate")),
      clip_(config.real("train.clip")),
      wants_graph_(config.boolean("train.graph")),
      model_(std::move(model)),
      optimizer_(make_optimizer(config, model_)),
      graph_(StepGraph::make(model_.device())) {
  for (const auto& [name, tensor] : model_.named_parameters()) parameters_.push_back(tensor);
  for (size_t group = 0; group < optimizer_.param_groups().size(); ++group)
    peak_rates_.push_back(optimizer_.group_options(group).lr());
  model_.set_recompute(config.boolean("model.recompute"));
  const auto on_device = at::TensorOptions().device(model_.device());
  const bool copies = !model_.device().is_cpu();
  host_tokens_ = at::empty({accumulate_, pass_sequences(), context_ + 1},
                           at::TensorOptions().dtype(at::kLong).pinned_memory(copies));
  tokens_ = copies ? at::empty(host_tokens_.sizes(), on_device.dtype(at::kLong)) : host_tokens_;
  // In a very narrow model all matrices count as vectors, so there is none to measure.
  const bool has_matrices = optimizer_.param_groups().size() > 1;
  if (config.boolean("metrics.norms") && has_matrices) norms_.emplace(optimizer_);
  results_ = at::empty({kOwnResults + (norms_ ? norms_->size() : 0)}, on_device.dtype(at::kDouble));
}

void Stepper::set_rates(double factor) {
  for (size_t group = 0; group < peak_rates_.size(); ++group) {
    const double rate = peak_rates_[group] * factor;
    optimizer_.param_groups()[group].options().set_lr(rate);
    const bool is_rest = group + 1 == peak_rates_.size();  // Mixed puts the matrices first
    (is_rest ? record_.aux_lr : record_.lr) = rate;
  }
}

void Stepper::work() {
  optimizer_.zero_grad();
  std::vector<Tensor> losses;
  for (int64_t pass = 0; pass < accumulate_; ++pass) {
    const Tensor loss = model_.loss(tokens_[pass]);
    (accumulate_ == 1 ? loss : loss / accumulate_).backward();
    losses.push_back(loss.detach());
  }
  const Tensor loss = at::stack(losses).to(at::kDouble).mean();
  const Tensor norm = clip_grad_norm(parameters_, clip_ > 0 ? clip_ : std::numeric_limits<double>::infinity());
  const Tensor own = results_.narrow(0, 0, kOwnResults);
  own.copy_(at::stack({loss, norm}));
  if (norms_) norms_->before();
  graph_->mark(StepGraph::kBefore);
  optimizer_.step_if(at::isfinite(own).all());
  graph_->mark(StepGraph::kAfter);
  if (norms_) results_.narrow(0, kOwnResults, norms_->size()).copy_(norms_->after());
}

void Stepper::launch(std::span<const int64_t> tokens, double factor) {
  record_ = {};
  begin_ = Clock::now();
  std::copy(tokens.begin(), tokens.end(), host_tokens_.mutable_data_ptr<int64_t>());
  set_rates(factor);
  const auto prepare = [&] {
    if (!tokens_.is_same(host_tokens_)) tokens_.copy_(host_tokens_, /*non_blocking=*/true);
    optimizer_.write_scalars();
    if (norms_) norms_->set_rate(record_.lr);
  };
  graph_->run(
      prepare, [&] { work(); }, may_capture_);
}

StepRecord Stepper::finish() {
  graph_->wait();
  const Tensor results = results_.cpu();
  record_.loss = results[0].item<double>();
  record_.grad_norm = results[1].item<double>();
  record_.skipped = !std::isfinite(record_.loss) || !std::isfinite(record_.grad_norm);
  if (record_.skipped) record_.culprit = find_culprit();
  if (norms_ && !record_.skipped) record_.norms = norms_->read(results.narrow(0, kOwnResults, norms_->size()));
  record_.optimizer_ms = graph_->milliseconds();
  record_.step_ms = std::chrono::duration<double, std::milli>(Clock::now() - begin_).count();
  record_.tokens_per_s = 1e3 * static_cast<double>(step_tokens()) / record_.step_ms;
  allow_graph();
  return record_;
}

// Runs after the first step, because the choice of kernels depends on the gradients.
void Stepper::allow_graph() {
  if (may_capture_ || !wants_graph_ || !model_.device().is_cuda()) return;
  wants_graph_ = may_capture_ = optimizer_.can_be_captured();
  if (!may_capture_) return;
  for (auto& group : optimizer_.param_groups()) static_cast<Options&>(group.options()).set_capturable(true);
}

void Stepper::release_gradients() {
  if (!is_graph()) optimizer_.zero_grad();
}

// Computes the step again on the same tokens and the unchanged weights, operation by operation. The step's own
// gradients do not help: one non-finite value makes all of them non-finite. Leaves .grad alone, because a graph may own
// it.
std::string Stepper::find_culprit() const try {
  const auto place = [&](int64_t pass) { return accumulate_ == 1 ? "" : fmt::format(" of pass {}", pass + 1); };
  for (int64_t pass = 0; pass < accumulate_; ++pass) {
    if (const auto found = model_.find_nonfinite(tokens_[pass]))
      return fmt::format("{}, sequence {}{}", found->operation, found->sequence + 1, place(pass));
  }
  for (int64_t pass = 0; pass < accumulate_; ++pass) {
    const auto gradients = torch::autograd::grad({model_.loss(tokens_[pass])}, parameters_);
    for (size_t i = gradients.size(); i-- > 0;) {  // the backward pass reaches the last parameters first
      if (!at::isfinite(gradients[i]).all().item<bool>())
        return fmt::format("the gradient of {}{}", model_.named_parameters()[i].first, place(pass));
    }
  }
  return "the norm of all gradients together";
} catch (const c10::OutOfMemoryError&) {
  return "";
}

}  // namespace prism::train
