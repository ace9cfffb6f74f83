// A step, from top to bottom:
//   collect    the gradients, all checked before any weight changes
//   guard      decides, on the device, if this step may change anything
//   operands   M ← βM + (1−β)G and the matrices to shape, element by element
//              ── `shape` needs whole matrices: with several processes, operands are sent to their owners here ──
//   shape      the update U, from the operands and the rest of the state
//              ── and U is sent back ──
//   write      W ← (1 − lr·λ)W − lr·U
// The last three run one bucket at a time, here in plain ATen or in the kernels of prism/cuda (cuda_step.cpp), whose
// stages have the same names. On the CPU, elementwise rules do all three in one pass (host_step.cpp), and matrices are
// stepped one by one.

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "prism/linalg/scratch.h"
#include "prism/optim/cuda_step.h"
#include "prism/optim/engine.h"
#include "prism/optim/gradients.h"
#include "prism/optim/host_step.h"
#include "prism/optim/ownership.h"

namespace prism {

void Engine::step(const StepRequest& request) {
  at::NoGradGuard no_grad;
  auto gradients = collect();
  if (everyone_) {
    check_plan();
    agree_on_presence(gradients);
  }
  has_begun_ = true;
  check_capture(gradients);
  write_scalars();
  const auto [goes_on, apply] = guard(gradients, request);
  if (!goes_on) return;
  for (size_t g = groups_.size(); g-- > 0;) {  // those of matrices last: the weights of the others travel meanwhile
    Group& group = groups_[g];
    const Tensor& lr = group.lr.value();
    step_group(group, gradients[g],
               {.lr = lr.defined() ? lr : at::scalar_tensor(group.options->lr(), at::kDouble),
                .apply = apply,
                .grad_scale = request.grad_scale,
                .gamma = group.gamma.value()},
               request.written);
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
  if (guarded && (everyone_ || !present.empty())) {
    const Tensor finite = everywhere(all_finite(present, skipped_.device()));
    apply = apply.defined() ? finite.logical_and(apply.to(finite.device())) : finite;
  }
  if (apply.defined() && skipped_.defined()) skipped_.add_(apply.logical_not().to(skipped_.device()));
  if (request.found_inf.defined()) {
    const Tensor finite = everywhere(request.found_inf.eq(0));
    apply = apply.defined() ? apply.logical_and(finite.to(apply.device())) : finite;
  }
  if (!apply.defined()) return {true, {}};
  if (apply.is_cpu()) return {apply.item<bool>(), {}};  // nothing to wait for: decide here
  return {true, apply.reshape({})};
}

namespace {

// ---- operands

// The entries of a bucket that have gradients.
struct Active {
  Bucket bucket;
  std::vector<int64_t> positions;        // in the stacks of the whole bucket
  std::vector<int64_t> owned;            // of the entries owned here, in the stacks of this bucket
  std::vector<int64_t> positions_owned;  // and in those of the owner
};

Active active_entries(const Bucket& bucket, const std::vector<Tensor>& gradients) {
  Active active{{{}, bucket.shape, bucket.type, bucket.device, {}, bucket.layout}, {}, {}, {}};
  int64_t owned = 0;
  for (size_t i = 0; i < bucket.entries.size(); ++i) {
    const auto& entry = bucket.entries[i];
    const bool is_owned = bucket.is_owned_here(entry);
    if (gradients.at(entry.parameter).defined()) {
      if (is_owned) {
        active.owned.push_back(static_cast<int64_t>(active.positions.size()));
        active.positions_owned.push_back(owned);
      }
      active.positions.push_back(static_cast<int64_t>(i));
      active.bucket.entries.push_back(entry);
    }
    owned += is_owned ? 1 : 0;
  }
  return active;
}

// The state to compute with: the stacks themselves, or copies of the entries at `positions` in the type to compute in.
struct Opened {
  State state;
  Tensor indices;  // of the entries; undefined: all
  bool is_copy = false;
};

Opened open_state(const State& stacks, const std::vector<Field>& fields, const std::vector<int64_t>& positions,
                  at::ScalarType compute, bool guarded) {
  Opened opened;
  std::set<std::string> foreign;  // fields stored in another type; counters and masters are used as they are
  for (const auto& field : fields) {
    if (field.storage != Storage::Counter && stacks[field.name].scalar_type() != compute) foreign.insert(field.name);
  }
  const auto all = stacks.size() == 0 ? positions.size() : static_cast<size_t>(stacks.begin()->second.size(0));
  if (positions.size() < all) {
    opened.indices = at::tensor(positions, at::TensorOptions().dtype(at::kLong)).to(stacks.begin()->second.device());
  }
  opened.is_copy = opened.indices.defined() || guarded || !foreign.empty();
  if (!opened.is_copy) {
    opened.state = stacks;
    return opened;
  }
  for (const auto& [name, stack] : stacks) {
    const Tensor copy = opened.indices.defined() ? stack.index_select(0, opened.indices) : stack.clone();
    opened.state.add(name, foreign.count(name) > 0 ? copy.to(compute) : copy);
  }
  return opened;
}

void close_state(const Opened& opened, const State& stacks, const Tensor& apply) {
  if (!opened.is_copy) return;
  for (const auto& [name, stack] : stacks) {
    Tensor next = opened.state[name].to(stack.scalar_type());
    if (apply.defined())
      next = at::where(apply, next, opened.indices.defined() ? stack.index_select(0, opened.indices) : stack);
    if (opened.indices.defined()) {
      stack.index_copy_(0, opened.indices, next);
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
void write_weights(const std::vector<Tensor>& weights, at::ScalarType weight_type, Tensor U, const Tensor& master,
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

// The updates of a stack of entries. On the CPU each matrix is shaped by itself: what it needs stays in the caches, and its
// bits do not depend on the matrices beside it.
Tensor directions(const Options& options, const Operands& operands, State& state) {
  const int64_t count = operands.T.size(0);
  if (!operands.T.is_cpu() || !options.takes_matrices() || count == 1) return options.direction(operands, state);
  std::vector<Tensor> updates;
  for (int64_t i = 0; i < count; ++i) {
    const auto entry = [&](const Tensor& stack) { return stack.defined() ? stack.narrow(0, i, 1) : stack; };
    State own;
    for (const auto& [name, stack] : state) own.add(name, entry(stack));
    updates.push_back(options.direction({entry(operands.T), entry(operands.D)}, own));
  }
  return at::cat(updates);
}

// Removes the weights that the rule leaves unchanged at this step.
void leave_resting(std::vector<Tensor>& weights, const Tensor& rests) {
  if (!rests.defined()) return;
  const Tensor host = rests.cpu();
  for (size_t i = 0; i < weights.size(); ++i) {
    if (host[static_cast<int64_t>(i)].item<bool>()) weights[i] = Tensor();
  }
}

// The step of one bucket in its three stages. If several processes share the bucket, the operands travel to their owners
// between the first two, and the updates back between the last two.
class BucketStep {
 public:
  BucketStep(const Options& options, Bucket& bucket, const std::vector<Tensor>& parameters,
             const std::vector<Tensor>& gradients, const StepInputs& inputs)
      : options_(options),
        bucket_(bucket),
        inputs_(inputs),
        active_(active_entries(bucket, gradients)),
        compute_(compute_type(options, bucket.type)) {
    if (active_.positions.empty()) return;
    here_ = open_state(bucket.state, fields_here(options, bucket), active_.positions, compute_, guarded());
    weights_ = parts_of(options, active_.bucket, parameters);
    G_ = stacked_gradients(options, active_.bucket, gradients);
    if (kernel_operands(options, active_.bucket)) kernels_.emplace(options, active_.bucket);
  }

  void make_operands() {
    Tensor G = std::move(G_);
    if (inputs_.grad_scale.defined()) G = G / inputs_.grad_scale.to(G.scalar_type());
    if (guarded()) G = at::where(inputs_.apply, G, at::zeros_like(G));
    const double decay = options_.weight_decay();
    if (options_.couples_decay() && decay != 0) G = G + stacked(weights_, bucket_.shape, G.scalar_type()) * decay;
    leave_resting(weights_, options_.rests(here_.state));
    operands_ = kernels_ ? kernels_->operands(G.contiguous(), here_.state) : options_.operands(G, here_.state);
    shape_ = G.sizes().vec();
    if (!bucket_.layout) return;
    for (const auto& entry : active_.bucket.entries) owners_.push_back(entry.owner);
    at_owners_ = to_owners({operands_.T, operands_.D}, *bucket_.layout, owners_);
    operands_ = {};
  }

  void shape() { U_ = bucket_.layout ? shape_owned() : directions(options_, operands_, here_.state); }

  // Starts to send the updates back, if there are owners.
  void send_back() { from_owners_ = from_owners(std::exchange(U_, {}), *bucket_.layout, owners_); }

  void write() {
    if (bucket_.layout) U_ = from_owners_().reshape(shape_);
    TORCH_INTERNAL_ASSERT(U_.sizes() == at::IntArrayRef(shape_));
    // In a canceled step U may hold NaN, and NaN times lr = 0 is not 0.
    if (guarded()) U_ = at::where(inputs_.apply, U_, at::zeros_like(U_));
    const Tensor lr = guarded() ? inputs_.lr.to(bucket_.device) * inputs_.apply : inputs_.lr;
    write_weights(weights_, bucket_.type, U_, here_.state["master"], lr,
                  options_.couples_decay() ? 0 : options_.weight_decay());
    close_state(here_, bucket_.state, inputs_.apply);
  }

  bool is_empty() const { return active_.positions.empty(); }

 private:
  bool guarded() const { return inputs_.apply.defined(); }

  // Shapes the matrices owned here, which have arrived whole.
  Tensor shape_owned() {
    const auto operands = std::exchange(at_owners_, {})();  // the messages end here
    const auto whole = [&, shape = whole_shape(options_, bucket_)](const Tensor& stack) {
      if (!stack.defined()) return stack;
      std::vector<int64_t> sizes = {stack.size(0)};
      sizes.insert(sizes.end(), shape.begin(), shape.end());
      return stack.reshape(sizes);
    };
    if (active_.owned.empty()) return operands[0].to(compute_);
    Opened owned =
        open_state(bucket_.owned, fields_of_owner(options_, bucket_), active_.positions_owned, compute_, guarded());
    State state = owned.state;
    for (const auto& field : fields_here(options_, bucket_)) {
      if (!field.shape.empty()) continue;  // only the numbers, such as step counts
      const Tensor stack = here_.state[field.name];
      state.add(field.name, stack.index_select(0, at::tensor(active_.owned, at::kLong).to(stack.device())));
    }
    const Operands arrived{whole(operands[0]), whole(operands[1])};
    const Tensor U = kernels_ ? kernels_->shape(arrived, state, active_.owned) : directions(options_, arrived, state);
    close_state(owned, bucket_.owned, inputs_.apply);
    return U;
  }

  const Options& options_;
  Bucket& bucket_;
  StepInputs inputs_;
  Active active_;
  at::ScalarType compute_;
  Opened here_;
  std::optional<SharedCudaStep> kernels_;  // of the two first stages, if they do them
  std::vector<Tensor> weights_;
  Tensor G_, U_;
  Operands operands_;
  std::vector<int64_t> shape_, owners_;
  std::function<std::vector<Tensor>()> at_owners_;
  std::function<Tensor()> from_owners_;
};

}  // namespace

void step_bucket(const Options& options, Bucket& bucket, const std::vector<Tensor>& parameters,
                 const std::vector<Tensor>& gradients, const StepInputs& inputs) {
  BucketStep step(options, bucket, parameters, gradients, inputs);
  if (step.is_empty()) return;
  step.make_operands();
  step.shape();
  step.write();
}

namespace {

// Takes the steps of buckets on the CPU, each with a single matrix: in parallel if there are enough of them to keep all
// threads busy; otherwise each uses all threads.
void step_singles(const Options& options, std::vector<Bucket>& singles, const std::vector<Tensor>& parameters,
                  const std::vector<Tensor>& gradients, const StepInputs& inputs) {
  std::vector<std::pair<double, Bucket*>> order;  // the most expensive first
  double total = 0;
  for (auto& bucket : singles) {
    const double cost = shaping_cost(bucket.shape, 1, options.gram_sides(bucket.shape));
    order.emplace_back(cost, &bucket);
    total += cost;
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  const int threads = at::get_num_threads();
  if (threads > 1 && total < 2 * threads * order.front().first) {
    const ScratchScope scope;
    for (const auto& [cost, bucket] : order) step_bucket(options, *bucket, parameters, gradients, inputs);
    return;
  }
  const bool inference = c10::InferenceMode::is_enabled();
  std::atomic<size_t> next = 0;
  at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    const c10::InferenceMode as_caller(inference);
    const at::NoGradGuard no_grad;
    const ScratchScope scope;
    for (int64_t thread = begin; thread < end; ++thread) {
      for (size_t i = next++; i < order.size(); i = next++)
        step_bucket(options, *order[i].second, parameters, gradients, inputs);
    }
  });
}

}  // namespace

// ---- the buckets of a group

void Engine::step_group(Group& group, const std::vector<Tensor>& gradients, const StepInputs& inputs,
                        const std::function<void(const Tensor&)>& written) {
  const Options& options = *group.options;
  std::vector<int64_t> unwritten(group.parameters.size(), 0);  // entries of each parameter
  for (const auto& bucket : group.buckets) {
    for (const auto& entry : bucket.entries) ++unwritten[entry.parameter];
  }
  const auto done = [&](const Bucket& bucket) {
    for (const auto& [parameter, part, first, owner] : bucket.entries) {
      if (--unwritten[parameter] == 0 && written && gradients[parameter].defined())
        written(group.parameters[parameter]);
    }
  };
  const CudaStep kernels(options, group.buckets, group.parameters, gradients, inputs);
  kernels.run([&](size_t bytes, at::Device device) {
    if (!scratch_.defined() || scratch_.device() != device || scratch_.numel() < static_cast<int64_t>(bytes))
      scratch_ = at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).device(device));
    return scratch_.mutable_data_ptr();
  });
  for (size_t b = 0; b < group.buckets.size(); ++b) {
    if (kernels.takes(b)) done(group.buckets[b]);
  }
  std::vector<Bucket*> exchanged;
  std::vector<Bucket> singles;
  const auto is_stepped_alone = [&](const Bucket& bucket) {
    return bucket.device.is_cpu() && !bucket.layout && options.takes_matrices();
  };
  const auto inputs_on = [&](at::Device device) {
    const auto here = [&](const Tensor& value) { return value.defined() ? value.to(device) : value; };
    return StepInputs{.lr = inputs.lr, .apply = here(inputs.apply), .grad_scale = here(inputs.grad_scale)};
  };
  for (size_t b = 0; b < group.buckets.size(); ++b) {
    if (kernels.takes(b)) continue;
    Bucket& bucket = group.buckets[b];
    TORCH_CHECK(!options.capturable() || !bucket.device.is_cuda() || !has_gradient(bucket, gradients), options.name(),
                ": capturable needs contiguous float32, bfloat16 or float16 parameters of one GPU, float32 state, and "
                "polynomials of degree 5 or 9; parameters of shape ",
                at::IntArrayRef(bucket.shape), " and type ", bucket.type, " do not meet this");
    if (bucket.layout) {
      if (has_gradient(bucket, gradients)) exchanged.push_back(&bucket);
    } else if (is_stepped_alone(bucket)) {
      for (size_t i = 0; i < bucket.entries.size(); ++i) {
        if (gradients.at(bucket.entries[i].parameter).defined()) singles.push_back(single(bucket, i));
      }
    } else {
      const auto own = inputs_on(bucket.device);
      if (!step_on_host(options, bucket, group.parameters, gradients, own))
        step_bucket(options, bucket, group.parameters, gradients, own);
      done(bucket);
    }
  }
  if (!singles.empty()) step_singles(options, singles, group.parameters, gradients, inputs_on(at::kCPU));
  for (const auto& bucket : group.buckets) {
    if (is_stepped_alone(bucket)) done(bucket);
  }
  // While a bucket is shaped, the operands of the next and the updates of the last travel. On a GPU the processes agree on
  // a few numbers before they form operands; that message waits for those sent before. So the updates of a bucket leave
  // only after the operands that are formed next.
  std::vector<std::optional<BucketStep>> steps(exchanged.size());
  for (size_t b = 0; b < exchanged.size() + 3; ++b) {
    const auto exists = [&](size_t lag) { return b >= lag && b - lag < exchanged.size(); };
    if (exists(2)) steps[b - 2]->shape();
    if (exists(3)) {
      steps[b - 3]->write();
      steps[b - 3].reset();
    }
    if (exists(0)) {
      const auto own = inputs_on(exchanged[b]->device);
      steps[b].emplace(options, *exchanged[b], group.parameters, gradients, own).make_operands();
    }
    if (exists(2)) steps[b - 2]->send_back();
  }
}

}  // namespace prism
