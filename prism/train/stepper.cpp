#include "prism/train/stepper.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "prism/optim/gradients.h"
#include "prism/train/config.h"
#include "prism/train/processes.h"

namespace prism::train {
namespace {

using Clock = std::chrono::steady_clock;

enum Result : int64_t { kLoss, kGradNorm, kStop, kOwnResults };

std::vector<Tensor> tensors_of(const model::Qwen2& model) {
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : model.named_parameters()) tensors.push_back(tensor);
  return tensors;
}

Mixed make_optimizer(const io::Config& config, const model::Qwen2& model, const std::vector<Tensor>& stepped) {
  const auto pair = optimizer_options(config);
  return {model.named_parameters(), default_rules(*pair.matrices, *pair.rest), stepped};
}

// The pieces whose norms form the joint norm of all gradients. An exact sum needs pieces that do not depend on the number
// of processes.
std::vector<dist::Part> norm_pieces(const io::Config& config, const model::Qwen2& model,
                                    const std::vector<dist::Part>& parts) {
  if (!config.boolean("train.exact_reduction")) return parts;
  constexpr int64_t kEveryone = -1;
  const auto elementwise = are_elementwise(routing_of(config, model.named_parameters()));
  std::vector<dist::Part> pieces;
  for (size_t p = 0; p < elementwise.size(); ++p) {
    const int64_t elements = model.named_parameters()[p].second.numel();
    const int64_t unit = elementwise[p] ? dist::unit_of(elements) : elements;
    for (int64_t begin = 0; begin < elements; begin += unit) {
      const auto owner = std::find_if(parts.begin(), parts.end(), [&](const dist::Part& part) {
        return part.parameter == p && begin >= part.begin && begin < part.begin + part.size;
      });
      pieces.push_back({p, begin, std::min(unit, elements - begin), owner == parts.end() ? kEveryone : owner->owner});
    }
  }
  return pieces;
}

}  // namespace

Stepper::Stepper(const io::Config& config, model::Qwen2 model, std::shared_ptr<dist::Communicator> processes)
    : processes_(std::move(processes)),
      context_(config.integer("train.context")),
      batch_(config.integer("train.batch")),
      batches_(micro_batches(config, *processes_)),
      clip_(config.real("train.clip")),
      wants_graph_(config.boolean("train.graph")),
      model_(std::move(model)),
      parameters_(tensors_of(model_)),
      parts_(train::parts(config, model_.named_parameters(), *processes_)),
      pieces_(norm_pieces(config, model_, parts_)),
      gradients_(processes_, parameters_, batches_, config.boolean("train.exact_reduction"), parts_),
      optimizer_(make_optimizer(config, model_, gradients_.stepped())),
      graph_(StepGraph::make(model_.device())) {
  if (is_owned()) {
    weights_.emplace(processes_, parameters_, parts_, gradients_.stepped(), order_of_stepping(optimizer_.routing()),
                     dist::GradientSum::kBucketElements);
  }
  for (size_t group = 0; group < optimizer_.param_groups().size(); ++group)
    peak_rates_.push_back(optimizer_.group_options(group).lr());
  model_.set_recompute(config.boolean("model.recompute"));
  const auto on_device = at::TensorOptions().device(model_.device());
  const bool copies = !model_.device().is_cpu();
  host_tokens_ = at::empty({batches_.here, pass_sequences(), context_ + 1},
                           at::TensorOptions().dtype(at::kLong).pinned_memory(copies));
  tokens_ = copies ? at::empty(host_tokens_.sizes(), on_device.dtype(at::kLong)) : host_tokens_;
  stop_ = at::zeros({1}, on_device.dtype(at::kDouble));
  // In a very narrow model all matrices count as vectors, so there is none to measure.
  const bool has_matrices = optimizer_.param_groups().size() > 1;
  if (config.boolean("metrics.norms") && has_matrices)
    norms_.emplace(optimizer_, model_.device(), *processes_, is_owned());
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

// Returns the mean over all micro-batches, and the number of processes that ask to stop; `losses` are those of this
// process. Each process adds zeros to the losses of the others, which is exact in any order.
Tensor Stepper::loss_and_stop(const std::vector<Tensor>& losses) {
  const Tensor own = at::stack(losses).to(at::kDouble);
  if (!processes_->is_distributed()) return at::cat({own.mean().reshape(1), stop_});
  const Tensor all = at::zeros({batches_.all + 1}, own.options());
  all.narrow(0, batches_.first, batches_.here).copy_(own);
  all.narrow(0, batches_.all, 1).copy_(stop_);
  processes_->sum(all);
  return at::cat({all.narrow(0, 0, batches_.all).mean().reshape(1), all.narrow(0, batches_.all, 1)});
}

// Clips the gradients to `train.clip` and returns their joint norm before.
Tensor Stepper::clip() {
  const double most = clip_ > 0 ? clip_ : std::numeric_limits<double>::infinity();
  if (pieces_.empty()) return clip_grad_norm(parameters_, most);
  std::vector<int64_t> first(parameters_.size(), 0);  // element of each parameter that is stepped here
  for (const auto& part : parts_) {
    if (part.owner == processes_->rank()) first[part.parameter] = part.begin;
  }
  std::vector<Tensor> gradients;
  for (const auto& piece : pieces_) {
    const bool is_here = !is_owned() || piece.owner == processes_->rank();
    const Tensor gradient = is_here ? gradients_.stepped()[piece.parameter].grad() : Tensor();
    gradients.push_back(gradient.defined() ? piece.of(gradient, first[piece.parameter]) : gradient);
  }
  const auto combine = [&](Tensor& norms) { processes_->sum(norms); };
  return clip_pieces(gradients, most, model_.device(), is_owned() ? combine : std::function<void(Tensor&)>());
}

void Stepper::work() {
  optimizer_.zero_grad();
  std::vector<Tensor> losses;
  gradients_([&](int64_t batch) {
    const Tensor loss = model_.loss(tokens_[batch - batches_.first]);
    (batches_.all == 1 ? loss : loss / batches_.all).backward();
    losses.push_back(loss.detach());
  });
  const Tensor loss = loss_and_stop(losses);
  const Tensor own = results_.narrow(0, 0, kOwnResults);
  own.copy_(at::stack({loss[0], clip(), loss[1]}));
  if (norms_) norms_->before();
  graph_->mark(StepGraph::kBefore);
  const auto written = [&](const Tensor& stepped) { weights_->written(stepped); };
  optimizer_.step_if(at::isfinite(own).all(), weights_ ? written : std::function<void(const Tensor&)>());
  graph_->mark(StepGraph::kAfter);
  if (norms_) results_.narrow(0, kOwnResults, norms_->size()).copy_(norms_->after());
  if (weights_) weights_->finish();
}

void Stepper::launch(std::span<const int64_t> tokens, double factor, bool stop) {
  record_ = {};
  begin_ = Clock::now();
  const auto row = static_cast<size_t>(pass_sequences() * (context_ + 1));
  const auto here = tokens.subspan(static_cast<size_t>(batches_.first) * row, static_cast<size_t>(batches_.here) * row);
  std::copy(here.begin(), here.end(), host_tokens_.mutable_data_ptr<int64_t>());
  set_rates(factor);
  const auto prepare = [&] {
    if (!tokens_.is_same(host_tokens_)) tokens_.copy_(host_tokens_, /*non_blocking=*/true);
    if (processes_->is_distributed()) stop_.fill_(stop ? 1 : 0);
    optimizer_.write_scalars();
    if (norms_) norms_->set_rate(record_.lr);
  };
  graph_->run(
      prepare, [&] { work(); }, may_capture_);
}

// A step that is replayed from a graph has no time-out of its own: NCCL does not watch it.
void Stepper::wait() {
  if (!processes_->is_distributed()) return graph_->wait();
  if (graph_->wait_for(processes_->timeout())) return;
  throw dist::PeerError(
      fmt::format("another process did not take part in a step within {:g} s; it may hang, or be busy for longer than "
                  "run.peer_timeout",
                  processes_->timeout().count()));
}

StepRecord Stepper::finish() {
  wait();
  const Tensor results = results_.cpu();
  record_.loss = results[kLoss].item<double>();
  record_.grad_norm = results[kGradNorm].item<double>();
  stop_requested_ = results[kStop].item<double>() > 0;
  record_.skipped = !std::isfinite(record_.loss) || !std::isfinite(record_.grad_norm);
  if (record_.skipped) record_.culprit = find_culprit();
  if (norms_ && !record_.skipped) record_.norms = norms_->read(results.narrow(0, kOwnResults, norms_->size()));
  record_.optimizer_ms = graph_->milliseconds();
  record_.step_ms = std::chrono::duration<double, std::milli>(Clock::now() - begin_).count();
  record_.tokens_per_s = 1e3 * static_cast<double>(step_tokens()) / record_.step_ms;
  allow_graph();
  return record_;
}

// Runs after the first step, because the choice of kernels depends on the gradients. NCCL expects that all processes
// capture an operation, or none.
void Stepper::allow_graph() {
  if (may_capture_ || !wants_graph_ || !model_.device().is_cuda()) return;
  Tensor refused =
      at::full({1}, optimizer_.can_be_captured() ? 0 : 1, at::TensorOptions(at::kInt).device(processes_->device()));
  processes_->maximum(refused);
  wants_graph_ = may_capture_ = refused.item<int>() == 0;
  if (!may_capture_) return;
  for (auto& group : optimizer_.param_groups()) static_cast<Options&>(group.options()).set_capturable(true);
}

void Stepper::release_gradients() {
  if (!is_graph()) optimizer_.zero_grad();
}

// Computes the step again on the same tokens and the unchanged weights, operation by operation. The step's own
// gradients do not help: one non-finite value makes all of them non-finite. Leaves .grad alone, because a graph may own
// it.
std::string Stepper::find_culprit() const {
  enum : char { kOperation = '0', kGradient, kNorm };  // the first is what users want to know most
  const auto place = [&](int64_t pass) {
    return batches_.all == 1 ? "" : fmt::format(" of pass {}", batches_.first + pass + 1);
  };
  const auto find = [&]() -> std::string {
    for (int64_t pass = 0; pass < batches_.here; ++pass) {
      if (const auto found = model_.find_nonfinite(tokens_[pass])) {
        return fmt::format("{}{}, sequence {}{}", char{kOperation}, found->operation, found->sequence + 1, place(pass));
      }
    }
    for (int64_t pass = 0; pass < batches_.here; ++pass) {
      const auto gradients = torch::autograd::grad({model_.loss(tokens_[pass])}, parameters_);
      for (size_t i = gradients.size(); i-- > 0;) {  // the backward pass comes to the last parameters first
        if (!at::isfinite(gradients[i]).all().item<bool>()) {
          return fmt::format("{}the gradient of {}{}", char{kGradient}, model_.named_parameters()[i].first,
                             place(pass));
        }
      }
    }
    return fmt::format("{}the norm of all gradients together", char{kNorm});
  };
  std::string found;
  try {
    found = find();
  } catch (const c10::OutOfMemoryError&) {
    found = char{kNorm};
  }
  const auto all = processes_->gather(found);
  const auto& best =
      *std::min_element(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.front() < b.front(); });
  return best.substr(1);
}

}  // namespace prism::train
