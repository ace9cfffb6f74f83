// A step, from top to bottom:
//   collect    the gradients, all checked before any weight changes
//   guard      decides, on the device, if this step may change anything
//   operands   M ← βM + (1−β)G and the matrices to shape, element by element
//              ── `shape` needs whole matrices: with several processes, operands are sent to their owners here ──
//   shape      the update U, from the operands and the rest of the state
//              ── and U is sent back ──
//   write      W ← (1 − lr·λ)W − lr·U
// The last three run one bucket at a time, here in plain ATen or in the kernels of prism/cuda (cuda_step.cpp), whose
// stages have the same names.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <set>

#include "prism/optim/cuda_step.h"
#include "prism/optim/engine.h"
#include "prism/optim/gradients.h"

namespace prism {

void Engine::step(const StepRequest& request) {
  at::NoGradGuard no_grad;
  const auto gradients = collect();
  check_capture(gradients);
  write_scalars();
  const auto [goes_on, apply] = guard(gradients, request);
  if (!goes_on) return;
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    const Tensor& lr = group.lr.value();
    step_group(group, gradients[g],
               {.lr = lr.defined() ? lr : at::scalar_tensor(group.options->lr(), at::kDouble),
                .apply = apply,
                .grad_scale = request.grad_scale,
                .gamma = group.gamma.value()});
  }
}

// ---- collect

Engine::Gradients Engine::collect() const {
  Gradients all;
  for (const auto& group : groups_) {
    auto& gradients = all.emplace_back();
    gradients.reserve(group.parameters.size());
    for (size_t p = 0; p < group.parameters.size(); ++p) {
      const Tensor& parameter = group.parameters[p];
      const Tensor& gradient = gradients.emplace_back(parameter.grad());
      if (!gradient.defined()) continue;
      const auto who = [&] { return group.options->name() + ": the gradient of '" + group.names[p] + "'"; };
      TORCH_CHECK(gradient.layout() == at::kStrided, who(), " must be dense, got ", gradient.layout(),
                  "; make it dense first");
      TORCH_CHECK(!gradient.is_complex(), who(), " must be real, got ", gradient.scalar_type());
      TORCH_CHECK(gradient.sizes() == parameter.sizes() && gradient.device() == parameter.device(), who(), " must be ",
                  parameter.sizes(), " on ", parameter.device(), ", got ", gradient.sizes(), " on ", gradient.device());
    }
  }
  return all;
}

void Engine::check_capture(const Gradients& gradients) const {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    if (group.buckets.empty() || !is_capturing(group.buckets.front().device)) continue;
    TORCH_CHECK(group.options->capturable(), group.options->name(),
                ": capturing a step into a graph needs capturable=True; without it the graph would keep the present "
                "learning rate");
    for (size_t p = 0; p < gradients[g].size(); ++p) {
      TORCH_CHECK(gradients[g][p].defined(), group.options->name(), ": '", group.names[p],
                  "' has no gradient; a graph captured now would never update it");
    }
  }
}

// ---- guard

// Returns false if the step is canceled on the host, and a boolean on the device that is false if it is canceled there;
// undefined if there is nothing to check.
std::pair<bool, Tensor> Engine::guard(const Gradients& gradients, const StepRequest& request) {
  std::vector<Tensor> present;
  bool guarded = false;
  for (size_t g = 0; g < groups_.size(); ++g) {
    guarded |= groups_[g].options->skip_nonfinite();
    for (const auto& gradient : gradients[g]) {
      if (gradient.defined()) present.push_back(gradient);
    }
  }
  Tensor apply = request.apply;
  if (guarded && !present.empty()) {
    const Tensor finite = all_finite(present, skipped_.device());
    apply = apply.defined() ? finite.logical_and(apply.to(finite.device())) : finite;
  }
  if (apply.defined() && skipped_.defined()) skipped_.add_(apply.logical_not().to(skipped_.device()));
  if (request.found_inf.defined()) {
    const Tensor finite = request.found_inf.eq(0);
    apply = apply.defined() ? apply.logical_and(finite.to(apply.device())) : finite;
  }
  if (!apply.defined()) return {true, {}};
  if (apply.is_cpu()) return {apply.item<bool>(), {}};  // nothing to wait for: decide here
  return {true, apply.reshape({})};
}

// ---- the buckets of a group

void Engine::step_group(Group& group, const std::vector<Tensor>& gradients, const StepInputs& inputs) {
  const Options& options = *group.options;
  const CudaStep kernels(options, group.buckets, group.parameters, gradients, inputs);
  kernels.run([&](size_t bytes, at::Device device) {
    if (!scratch_.defined() || scratch_.device() != device || scratch_.numel() < static_cast<int64_t>(bytes))
      scratch_ = at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).device(device));
    return scratch_.mutable_data_ptr();
  });
  for (size_t b = 0; b < group.buckets.size(); ++b) {
    if (kernels.takes(b)) continue;
    Bucket& bucket = group.buckets[b];
    TORCH_CHECK(!options.capturable() || !bucket.device.is_cuda() || !has_gradient(bucket, gradients), options.name(),
                ": capturable needs contiguous float32, bfloat16 or float16 parameters of one GPU, float32 state, and "
                "polynomials of degree 5 or 9; parameters of shape ",
                at::IntArrayRef(bucket.shape), " and type ", bucket.type, " do not meet this");
    const auto here = [&](const Tensor& value) { return value.defined() ? value.to(bucket.device) : value; };
    step_bucket(options, bucket, group.parameters, gradients,
                {.lr = inputs.lr, .apply = here(inputs.apply), .grad_scale = here(inputs.grad_scale)});
  }
}

namespace {

// ---- operands

// The entries of a bucket that have gradients, and the state to compute with: the stacks themselves, or copies of the
// active entries in the type to compute in.
struct Work {
  Bucket active;
  Tensor indices;  // of the active entries; undefined: all
  bool is_copy = false;
};

Work open_work(const Options& options, const Bucket& bucket, const std::vector<Tensor>& gradients, bool guarded) {
  Work work{{{}, bucket.shape, bucket.type, bucket.device, {}}, {}, false};
  std::vector<int64_t> present;
  for (size_t i = 0; i < bucket.entries.size(); ++i) {
    if (!gradients.at(bucket.entries[i].parameter).defined()) continue;
    present.push_back(static_cast<int64_t>(i));
    work.active.entries.push_back(bucket.entries[i]);
  }
  if (present.empty()) return work;
  if (present.size() < bucket.entries.size())
    work.indices = at::tensor(present, at::TensorOptions().dtype(at::kLong)).to(bucket.device);
  const auto compute = compute_type(options, bucket.type);
  std::set<std::string> foreign;  // fields stored in another type; counters and masters are used as they are
  for (const auto& field : options.fields(bucket.shape)) {
    if (field.storage != Storage::Counter && bucket.state[field.name].scalar_type() != compute)
      foreign.insert(field.name);
  }
  work.is_copy = work.indices.defined() || guarded || !foreign.empty();
  if (!work.is_copy) {
    work.active.state = bucket.state;
    return work;
  }
  for (const auto& [name, stack] : bucket.state) {
    const Tensor copy = work.indices.defined() ? stack.index_select(0, work.indices) : stack.clone();
    work.active.state.add(name, foreign.count(name) > 0 ? copy.to(compute) : copy);
  }
  return work;
}

void close_work(const Work& work, Bucket& bucket, const Tensor& apply) {
  if (!work.is_copy) return;
  for (const auto& [name, stack] : bucket.state) {
    Tensor next = work.active.state[name].to(stack.scalar_type());
    if (apply.defined())
      next = at::where(apply, next, work.indices.defined() ? stack.index_select(0, work.indices) : stack);
    if (work.indices.defined()) {
      stack.index_copy_(0, work.indices, next);
    } else {
      stack.copy_(next);
    }
  }
}

// ---- write

// Returns the master of each element, or its 16-bit weight if that is no longer the rounded master: the user wrote the
// weight since the last step (loaded a checkpoint, swapped in averaged weights), and a stale master would undo it. This
// is decided element by element: it needs no reduction and no wait, and any part of a weight may change.
Tensor current_master(const Tensor& master, const Tensor& weight) {
  return at::where(master.to(weight.scalar_type()).eq(weight), master, weight.to(master.scalar_type()));
}

// Writes W ← (1 − lr·λ)W − lr·U, at least in float32: 16-bit weights are rounded once, at the end. Skips undefined
// weights.
void write(const std::vector<Tensor>& weights, at::ScalarType weight_type, Tensor U, const Tensor& master,
           const Tensor& lr, double decay) {
  const auto type = U.scalar_type();
  // A rate on the host is used as a number. One on the device must not be read here: that would wait for the device.
  at::Scalar rate = 1;
  at::Scalar keep = 1;
  Tensor device_keep;
  if (lr.is_cpu()) {
    rate = lr.item<double>();
    keep = 1 - lr.item<double>() * decay;
  } else {
    U = U * lr.to(type);
    device_keep = (1 - lr.to(at::kDouble) * decay).to(type);
  }
  const auto decayed = [&](const Tensor& W) { return lr.is_cpu() ? W.mul(keep) : W.mul(device_keep); };
  const auto update = [&](size_t i) { return U[static_cast<int64_t>(i)].reshape(weights[i].sizes()); };

  if (!master.defined() && weight_type == type) {
    std::vector<Tensor> moving;
    std::vector<Tensor> updates;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (!weights[i].defined()) continue;
      moving.push_back(weights[i]);
      updates.push_back(update(i));
    }
    if (moving.empty()) return;
    if (decay != 0 && lr.is_cpu()) at::_foreach_mul_(moving, keep);
    if (decay != 0 && !lr.is_cpu()) at::_foreach_mul_(moving, device_keep);
    at::_foreach_add_(moving, updates, -rate);
    return;
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!weights[i].defined()) continue;
    Tensor W = master.defined() ? master[static_cast<int64_t>(i)].view(weights[i].sizes()) : weights[i].to(type);
    if (master.defined()) W.copy_(current_master(W, weights[i]));
    if (decay != 0) W.copy_(decayed(W));
    weights[i].copy_(W.sub_(update(i), rate));
  }
}

// Removes the weights that the rule leaves unchanged at this step.
void leave_resting(std::vector<Tensor>& weights, const Tensor& rests) {
  if (!rests.defined()) return;
  const Tensor host = rests.cpu();
  for (size_t i = 0; i < weights.size(); ++i) {
    if (host[static_cast<int64_t>(i)].item<bool>()) weights[i] = Tensor();
  }
}

}  // namespace

void step_bucket(const Options& options, Bucket& bucket, const std::vector<Tensor>& parameters,
                 const std::vector<Tensor>& gradients, const StepInputs& inputs) {
  const bool guarded = inputs.apply.defined();
  Work work = open_work(options, bucket, gradients, guarded);
  if (work.active.entries.empty()) return;
  State& state = work.active.state;
  auto weights = parts_of(options, work.active, parameters);
  Tensor G = stacked_gradients(options, work.active, gradients);
  if (inputs.grad_scale.defined()) G = G / inputs.grad_scale.to(G.scalar_type());
  if (guarded) G = at::where(inputs.apply, G, at::zeros_like(G));
  const double decay = options.weight_decay();
  if (options.couples_decay() && decay != 0) G = G + stacked(weights, bucket.shape, G.scalar_type()) * decay;
  leave_resting(weights, options.rests(state));

  const Operands operands = options.operands(G, state);
  Tensor U = options.direction(operands, state);
  TORCH_INTERNAL_ASSERT(U.sizes() == G.sizes());

  // In a canceled step U may hold NaN, and NaN times lr = 0 is not 0.
  if (guarded) U = at::where(inputs.apply, U, at::zeros_like(U));
  const Tensor lr = guarded ? inputs.lr.to(bucket.device) * inputs.apply : inputs.lr;
  write(weights, bucket.type, U, state["master"], lr, options.couples_decay() ? 0 : decay);
  close_work(work, bucket, inputs.apply);
}

}  // namespace prism
