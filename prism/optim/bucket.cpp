#include "prism/optim/bucket.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <set>

#include "prism/optim/cuda_step.h"
#include "prism/optim/matrix.h"

namespace prism {
namespace {

bool is_16_bit(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

at::ScalarType state_type(const Options& options, at::ScalarType weights) {
  switch (options.state_dtype()) {
    case StateType::Float32:
      return at::kFloat;
    case StateType::Float64:
      return at::kDouble;
    case StateType::BFloat16:
      return at::kBFloat16;
    case StateType::Auto:
      break;
  }
  return weights == at::kDouble ? at::kDouble : at::kFloat;
}

at::ScalarType compute_type_of(const Options& options, at::ScalarType weights) {
  return weights == at::kDouble || options.state_dtype() == StateType::Float64 ? at::kDouble : at::kFloat;
}

at::ScalarType field_type(Storage storage, const Options& options, at::ScalarType weights) {
  if (storage == Storage::Counter) return at::kFloat;
  return storage == Storage::State ? state_type(options, weights) : compute_type_of(options, weights);
}

bool has_master(const Options& options, const Bucket& bucket) {
  return options.master_weights() && is_16_bit(bucket.type);
}

std::string who(const Options& options, const std::string& parameter) {
  return options.name() + ": '" + parameter + "'";
}

Tensor part_of(const Options& options, const Bucket::Entry& entry, const Tensor& whole) {
  return entry.part < 0 ? whole : parts_of(whole, options, options.name()).at(entry.part);
}

// On the host a stack stays below the 32 MiB from which glibc's malloc maps, and so zeroes, fresh pages for every
// temporary.
bool is_full(const Bucket& bucket, const Tensor& part) {
  constexpr int64_t kLargestStack = int64_t{24} << 20;
  const int64_t elements = static_cast<int64_t>(bucket.entries.size() + 1) * part.numel();
  return part.is_cpu() && elements * static_cast<int64_t>(sizeof(float)) > kLargestStack;
}

// The state to compute with: the stacks themselves, or copies of the active entries in the type of computation.
struct Workspace {
  State state;
  bool is_copy;
};

Workspace open_workspace(const Options& options, const Bucket& bucket, const Tensor& active, bool guarded,
                         at::ScalarType compute) {
  // Kept in another type than that of computation; counters and masters are used as they are.
  std::set<std::string> foreign;
  for (const auto& field : options.fields(bucket.shape)) {
    if (field.storage != Storage::Counter && bucket.state[field.name].scalar_type() != compute)
      foreign.insert(field.name);
  }
  if (!active.defined() && !guarded && foreign.empty()) return {bucket.state, false};
  Workspace workspace{{}, true};
  for (const auto& [name, stack] : bucket.state) {
    const Tensor copy = active.defined() ? stack.index_select(0, active) : stack.clone();
    workspace.state.add(name, foreign.count(name) > 0 ? copy.to(compute) : copy);
  }
  return workspace;
}

void close_workspace(const Workspace& workspace, Bucket& bucket, const Tensor& active, const Tensor& apply) {
  if (!workspace.is_copy) return;
  for (const auto& [name, stack] : bucket.state) {
    Tensor next = workspace.state[name].to(stack.scalar_type());
    if (apply.defined()) next = at::where(apply, next, active.defined() ? stack.index_select(0, active) : stack);
    if (active.defined()) {
      stack.index_copy_(0, active, next);
    } else {
      stack.copy_(next);
    }
  }
}

// The master of each element, or its 16-bit weight where that is no longer the rounded master: someone wrote the weight
// since the last step (loaded a checkpoint, swapped in averaged weights), and a stale master would undo it. Decided
// element by element, so that it needs no reduction and no wait, and takes a change of any part.
Tensor current_master(const Tensor& master, const Tensor& weight) {
  return at::where(master.to(weight.scalar_type()).eq(weight), master, weight.to(master.scalar_type()));
}

// W ← (1 − lr·λ)W − lr·U, the only writer of weights. In float32 at least: 16-bit weights are rounded once, at the end.
// An undefined weight is passed over.
void apply_update(const std::vector<Tensor>& weights, at::ScalarType weight_type, Tensor U, const Tensor& master,
                  const Tensor& lr, double decay) {
  const auto type = U.scalar_type();
  // A rate on the host enters as a number; one on the device must not be looked at.
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

constexpr const char* kWayOut = "; set options that change the state when the optimizer is made";

// Options that ask for another state than was made would go unheard.
void check_state(const Bucket& bucket, const Options& options, const std::vector<Tensor>& parameters,
                 const std::vector<std::string>& names) {
  for (const auto& entry : bucket.entries) {
    const auto label = who(options, names.at(entry.parameter));
    const auto parts = parts_of(parameters.at(entry.parameter), options, label);
    const auto part = std::max<int64_t>(entry.part, 0);
    TORCH_CHECK((entry.part >= 0) == (parts.size() > 1) && part < static_cast<int64_t>(parts.size()) &&
                    working_shape(parts[part], options, label) == bucket.shape,
                label, " had parts of shape ", at::IntArrayRef(bucket.shape),
                " when its state was made and has others now", kWayOut);
  }
  const auto first = who(options, entry_name(names, bucket.entries.front()));
  auto fields = options.fields(bucket.shape);
  if (has_master(options, bucket) || bucket.state["master"].defined()) fields.push_back({"master", bucket.shape});
  for (const auto& field : fields) {
    const Tensor stack = bucket.state[field.name];
    TORCH_CHECK(stack.defined() && stack.dim() > 0 && stack.sizes().slice(1) == at::IntArrayRef(field.shape), first,
                " has no state '", field.name, "' for its present options", kWayOut);
  }
  TORCH_CHECK(bucket.state.size() == fields.size(), first, " has ", bucket.state.size(),
              " fields of state, but its present options use ", fields.size(), kWayOut);
}

Tensor stacked(const std::vector<Tensor>& parts, at::IntArrayRef shape, at::ScalarType type) {
  std::vector<Tensor> shaped;
  shaped.reserve(parts.size());
  for (const auto& part : parts) shaped.push_back(part.reshape(shape));
  return (shaped.size() == 1 ? shaped.front().unsqueeze(0) : at::stack(shaped)).to(type);
}

}  // namespace

std::string entry_name(const std::vector<std::string>& names, const Bucket::Entry& entry) {
  const auto& name = names.at(entry.parameter);
  return entry.part < 0 ? name : name + ".split." + std::to_string(entry.part);
}

Bucket single(const Bucket& bucket, size_t i) {
  Bucket one{{bucket.entries.at(i)}, bucket.shape, bucket.type, bucket.device, {}};
  for (const auto& [name, stack] : bucket.state) one.state.add(name, stack.narrow(0, static_cast<int64_t>(i), 1));
  return one;
}

std::vector<Bucket> make_buckets(const Options& options, const std::vector<Tensor>& parameters,
                                 const std::vector<std::string>& names, size_t first) {
  std::vector<Bucket> buckets;
  std::vector<std::vector<Tensor>> weights;
  for (size_t p = 0; p < parameters.size(); ++p) {
    const auto& parameter = parameters[p];
    const auto label = who(options, names[p]);
    TORCH_CHECK(at::isFloatingType(parameter.scalar_type()), label, " must hold real floating-point numbers, got ",
                parameter.scalar_type());
    const auto parts = parts_of(parameter, options, label);
    for (size_t k = 0; k < parts.size(); ++k) {
      const auto shape = working_shape(parts[k], options, label);
      auto bucket = std::find_if(buckets.begin(), buckets.end(), [&](const Bucket& b) {
        return b.shape == shape && b.type == parameter.scalar_type() && b.device == parameter.device() &&
               !is_full(b, parts[k]);
      });
      if (bucket == buckets.end()) {
        buckets.push_back({{}, shape, parameter.scalar_type(), parameter.device(), {}});
        weights.emplace_back();
        bucket = std::prev(buckets.end());
      }
      bucket->entries.push_back({first + p, parts.size() > 1 ? static_cast<int64_t>(k) : -1});
      weights[bucket - buckets.begin()].push_back(parts[k]);
    }
  }
  for (size_t b = 0; b < buckets.size(); ++b) buckets[b].state = make_state(options, buckets[b], weights[b]);
  return buckets;
}

State make_state(const Options& options, const Bucket& bucket, const std::vector<Tensor>& weights) {
  const auto stack = [&](const std::vector<int64_t>& shape, at::ScalarType type, double value) {
    std::vector<int64_t> sizes = {static_cast<int64_t>(bucket.entries.size())};
    sizes.insert(sizes.end(), shape.begin(), shape.end());
    return at::full(sizes, value, at::TensorOptions().dtype(type).device(bucket.device));
  };
  State state;
  for (const auto& field : options.fields(bucket.shape)) {
    state.add(field.name, stack(field.shape, field_type(field.storage, options, bucket.type), field.initial));
  }
  if (has_master(options, bucket)) {
    state.add("master", stacked(weights, bucket.shape, at::kFloat).clone());
  }
  return state;
}

void follow(Bucket& bucket, const Options& options, const std::vector<Tensor>& parameters,
            const std::vector<std::string>& names) {
  const auto& lead = parameters.at(bucket.entries.front().parameter);
  for (const auto& entry : bucket.entries) {
    const auto& parameter = parameters.at(entry.parameter);
    TORCH_CHECK(parameter.device() == lead.device() && parameter.scalar_type() == lead.scalar_type(),
                who(options, names.at(entry.parameter)), " is ", parameter.scalar_type(), " on ", parameter.device(),
                " while parameters of its shape are ", lead.scalar_type(), " on ", lead.device(),
                "; move all of them, or make the optimizer anew");
  }
  check_state(bucket, options, parameters, names);
  if (lead.device() == bucket.device && lead.scalar_type() == bucket.type) return;
  bucket.device = lead.device();
  bucket.type = lead.scalar_type();
  State moved = make_state(options, bucket, weights_of(options, bucket, parameters));
  for (const auto& [name, stack] : moved) {
    if (const Tensor old = bucket.state[name]; old.defined()) stack.copy_(old);
  }
  bucket.state = std::move(moved);
}

std::vector<Tensor> weights_of(const Options& options, const Bucket& bucket, const std::vector<Tensor>& parameters) {
  std::vector<Tensor> weights;
  for (const auto& entry : bucket.entries) weights.push_back(part_of(options, entry, parameters.at(entry.parameter)));
  return weights;
}

Tensor stacked_gradients(const Options& options, const Bucket& bucket, const std::vector<Tensor>& gradients) {
  const Tensor G = stacked(weights_of(options, bucket, gradients), bucket.shape, compute_type_of(options, bucket.type));
  return options.maximize() ? -G : G;
}

void step_bucket(const Options& options, Bucket& bucket, const std::vector<Tensor>& parameters,
                 const std::vector<Tensor>& gradients, const StepInputs& inputs) {
  std::vector<int64_t> present;
  Bucket part{{}, bucket.shape, bucket.type, bucket.device, {}};
  for (size_t i = 0; i < bucket.entries.size(); ++i) {
    if (!gradients.at(bucket.entries[i].parameter).defined()) continue;
    present.push_back(static_cast<int64_t>(i));
    part.entries.push_back(bucket.entries[i]);
  }
  if (present.empty()) return;
  const bool whole = present.size() == bucket.entries.size();
  const Tensor active = whole ? Tensor() : at::tensor(present, at::TensorOptions().dtype(at::kLong)).to(bucket.device);
  const bool guarded = inputs.apply.defined();

  auto weights = weights_of(options, part, parameters);
  Tensor G = stacked_gradients(options, part, gradients);
  if (inputs.grad_scale.defined()) G = G / inputs.grad_scale.to(G.scalar_type());
  if (guarded) G = at::where(inputs.apply, G, at::zeros_like(G));
  const bool coupled = options.couples_decay() && options.weight_decay() != 0;
  if (coupled) G = G + stacked(weights, bucket.shape, G.scalar_type()) * options.weight_decay();

  Workspace workspace = open_workspace(options, bucket, active, guarded, G.scalar_type());
  if (const Tensor rests = options.rests(workspace.state); rests.defined()) {
    const Tensor host = rests.cpu();
    for (size_t i = 0; i < weights.size(); ++i) {
      if (host[static_cast<int64_t>(i)].item<bool>()) weights[i] = Tensor();
    }
  }
  Tensor U = options.direction(G, workspace.state);
  TORCH_INTERNAL_ASSERT(U.sizes() == G.sizes());
  if (guarded) U = at::where(inputs.apply, U, at::zeros_like(U));  // 0/0 of a cancelled step times lr = 0 is not 0
  const Tensor lr = guarded ? inputs.lr.to(bucket.device) * inputs.apply : inputs.lr;
  apply_update(weights, bucket.type, U, workspace.state["master"], lr,
               options.couples_decay() ? 0 : options.weight_decay());
  close_workspace(workspace, bucket, active, inputs.apply);
}

namespace {

bool has_gradient(const Bucket& bucket, const std::vector<Tensor>& gradients) {
  return std::any_of(bucket.entries.begin(), bucket.entries.end(),
                     [&](const Bucket::Entry& entry) { return gradients.at(entry.parameter).defined(); });
}

}  // namespace

bool kernels_take(const Options& options, const std::vector<Bucket>& buckets, const std::vector<Tensor>& parameters,
                  const std::vector<Tensor>& gradients) {
  const CudaStep kernels(options, buckets, parameters, gradients, {.lr = at::scalar_tensor(options.lr(), at::kDouble)});
  for (size_t b = 0; b < buckets.size(); ++b) {
    if (!kernels.takes(b) && has_gradient(buckets[b], gradients)) return false;
  }
  return true;
}

int64_t step_buckets(const Options& options, std::vector<Bucket>& buckets, const std::vector<Tensor>& parameters,
                     const std::vector<Tensor>& gradients, const StepInputs& inputs, const Tensor& workspace) {
  CudaStep kernels(options, buckets, parameters, gradients, inputs);
  const int64_t needed = kernels.workspace_bytes();
  if (needed > (workspace.defined() ? workspace.numel() : 0)) return needed;
  kernels.run(workspace);
  for (size_t b = 0; b < buckets.size(); ++b) {
    if (kernels.takes(b)) continue;
    TORCH_CHECK(!options.capturable() || !buckets[b].device.is_cuda() || !has_gradient(buckets[b], gradients),
                options.name(),
                ": capturable needs contiguous float32, bfloat16 or float16 parameters of one GPU, float32 state, and "
                "polynomials of degree 5 or 9; those of shape ",
                at::IntArrayRef(buckets[b].shape), " and type ", buckets[b].type, " are not such");
    const auto here = [&](const Tensor& flag) { return flag.defined() ? flag.to(buckets[b].device) : flag; };
    step_bucket(options, buckets[b], parameters, gradients,
                {.lr = inputs.lr, .apply = here(inputs.apply), .grad_scale = here(inputs.grad_scale)});
  }
  return 0;
}

}  // namespace prism
