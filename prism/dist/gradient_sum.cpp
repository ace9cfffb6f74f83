#include "prism/dist/gradient_sum.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <numeric>

namespace prism::dist {
// Calls `full(b)` during a backward pass, in the order of the buckets, when the gradients of bucket b are complete. All
// processes have the same buckets, so their messages match even if their passes reach the parameters in another order.
class GradientSum::Arrivals {
 public:
  Arrivals(std::vector<size_t> bucket_of, size_t buckets) : bucket_of_(std::move(bucket_of)), missing_(buckets) {}

  void listen(std::function<void(size_t)> full) {
    full_ = std::move(full);
    next_ = 0;
    std::fill(missing_.begin(), missing_.end(), int64_t{0});
    for (const size_t bucket : bucket_of_) ++missing_[bucket];
    has_arrived_.assign(bucket_of_.size(), false);
  }

  // Notes that a gradient is complete. Returns false if no pass is being watched.
  bool arrived(size_t parameter) {
    if (!full_) return false;
    TORCH_INTERNAL_ASSERT(!has_arrived_[parameter], "a backward pass came to parameter ", parameter, " twice");
    has_arrived_[parameter] = true;
    --missing_[bucket_of_[parameter]];
    while (next_ < missing_.size() && missing_[next_] == 0) full_(next_++);
    return true;
  }

  // Ends the pass: buckets with parameters that got no gradient are complete too.
  void end() {
    while (next_ < missing_.size()) full_(next_++);
    full_ = {};
  }

  void stop() { full_ = {}; }

 private:
  std::vector<size_t> bucket_of_;  // each parameter
  std::vector<int64_t> missing_;   // gradients of each bucket
  std::vector<bool> has_arrived_;
  size_t next_ = 0;
  std::function<void(size_t)> full_;
};

namespace {

// Tells that autograd has added to the gradient of a parameter.
class ArrivalHook : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit ArrivalHook(std::function<void()> arrived) : arrived_(std::move(arrived)) {}
  void operator()(const Tensor& /*parameter*/) override { arrived_(); }

 private:
  std::function<void()> arrived_;
};

}  // namespace

GradientSum::GradientSum(std::shared_ptr<Communicator> all, std::vector<Tensor> parameters, MicroBatches batches,
                         bool exact, const std::vector<Part>& parts, int64_t bucket_elements)
    : all_(std::move(all)),
      parameters_(std::move(parameters)),
      batches_(batches),
      exact_(exact),
      owned_(!parts.empty()),
      stepped_(owned_ ? stepped_by(all_->rank(), parameters_, parts) : parameters_) {
  for (const auto& parameter : parameters_) {
    TORCH_CHECK(parameter.scalar_type() == parameters_.front().scalar_type(),
                "several processes: expected parameters of one type, got ", parameter.scalar_type(), " beside ",
                parameters_.front().scalar_type());
  }
  for (int64_t r = 0; r < all_->size(); ++r) {
    auto& ranges = subtrees_.emplace_back();
    if (exact_)
      find_subtrees({0, batches_.all}, range_of(r), ranges);
    else
      ranges.push_back(range_of(r));
  }
  std::vector<std::vector<Part>> of_parameter(parameters_.size());
  for (const auto& part : parts) of_parameter.at(part.parameter).push_back(part);
  std::vector<size_t> bucket_of(parameters_.size());
  std::vector<Part> open;
  int64_t elements = 0;
  for (size_t p = parameters_.size(); p-- > 0;) {
    bucket_of[p] = buckets_.size();
    if (!owned_) of_parameter[p].push_back({p, 0, parameters_[p].numel()});
    open.insert(open.begin(), of_parameter[p].begin(), of_parameter[p].end());
    elements += parameters_[p].numel();
    if (p > 0 && elements < bucket_elements) continue;
    buckets_.push_back(make_bucket(std::exchange(open, {})));
    elements = 0;
  }
  if (!all_->is_distributed()) return;
  arrivals_ = std::make_shared<Arrivals>(bucket_of, buckets_.size());
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const auto arrived = [arrivals = arrivals_, all = all_, p] {
      if (arrivals->arrived(p)) all->progress();
    };
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[p], std::make_unique<ArrivalHook>(arrived));
  }
}

GradientSum::~GradientSum() {
  if (!arrivals_) return;
  for (const auto& parameter : parameters_) torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
}

FlatParts GradientSum::make_bucket(std::vector<Part> parts) const {
  FlatParts bucket(std::move(parts), all_->size());
  if (owned_) return bucket;
  const int64_t share = aligned((bucket.size + all_->size() - 1) / all_->size());  // that each process adds for all
  for (size_t r = 0; r < bucket.counts.size(); ++r)
    bucket.counts[r] = std::clamp<int64_t>(bucket.size - static_cast<int64_t>(r) * share, 0, share);
  return bucket;
}

GradientSum::Range GradientSum::range_of(int64_t rank) const {
  return {rank * batches_.here, (rank + 1) * batches_.here};
}

// Lists the largest subtrees of `node` that lie within the micro-batches `here`, in order.
void GradientSum::find_subtrees(const Range& node, const Range& here, std::vector<Range>& found) {
  if (!node.touches(here)) return;
  if (node.is_within(here)) {
    found.push_back(node);
    return;
  }
  find_subtrees({node.begin, node.middle()}, here, found);
  find_subtrees({node.middle(), node.end}, here, found);
}

// The number of additions in subtree `node` that can be done once micro-batch `batch` of it is there: its inner nodes
// that end with this batch.
int64_t GradientSum::merges_after(int64_t batch, Range node) {
  int64_t count = 0;
  while (node.end - node.begin > 1) {
    if (node.end == batch + 1) ++count;
    (batch < node.middle() ? node.end : node.begin) = node.middle();
  }
  return count;
}

// Returns the sum of a subtree. `leaf` returns the sums that exist already, and nothing for other nodes.
Tensor GradientSum::add(const Range& node, const std::function<Tensor(const Range&)>& leaf) const {
  Tensor sum = leaf(node);
  if (sum.defined()) return sum;
  sum = add({node.begin, node.middle()}, leaf);
  return sum.add_(add({node.middle(), node.end}, leaf));
}

// Moves the gradients of a bucket into one flat tensor.
Tensor GradientSum::flat_gradients(const FlatParts& bucket) {
  const Tensor flat = at::zeros({bucket.size}, parameters_.front().options().requires_grad(false));
  for (const auto& [part, begin] : bucket.places) {
    const Tensor& gradient = parameters_[part.parameter].grad();
    if (gradient.defined()) flat.narrow(0, begin, part.size).copy_(part.of(gradient.contiguous()));
  }
  for (const auto& place : bucket.places) parameters_[place.part.parameter].mutable_grad() = Tensor();
  return flat;
}

// Makes the gradients views of the flat tensor: all of them, or those owned here.
void GradientSum::set_gradients(const FlatParts& bucket, const Tensor& flat) {
  // For autograd these are tensors of their own: zero_grad refuses to detach views.
  const at::AutoDispatchBelowADInplaceOrView untracked;
  for (const auto& [part, begin] : bucket.places) {
    if (owned_ && part.owner != all_->rank()) continue;
    Tensor& stepped = stepped_[part.parameter];
    stepped.mutable_grad() = flat.narrow(0, begin, part.size).view(stepped.sizes());
  }
}

// Adds the subtrees of all ranks, in their order.
Tensor GradientSum::sum_of(const std::vector<Tensor>& arrived) const {
  if (!exact_) {
    for (size_t i = 1; i < arrived.size(); ++i) arrived.front().add_(arrived[i]);
    return arrived.front();
  }
  return add({0, batches_.all}, [&](const Range& node) {
    size_t i = 0;
    for (const auto& ranges : subtrees_) {
      for (const auto& range : ranges) {
        if (range == node) return arrived[i];
        ++i;
      }
    }
    return Tensor();
  });
}

// Starts to send each rank its range of elements. The result returns the flat tensor with the sums over all ranks: in
// this rank's range if there are owners, else everywhere. `subtrees` are the sums of this rank's subtrees.
std::function<Tensor()> GradientSum::begin_exchange(const FlatParts& bucket,
                                                    const std::vector<Tensor>& subtrees) const {
  if (!all_->is_distributed()) return [flat = subtrees.front()] { return flat; };
  if (!exact_ && !owned_) return all_->begin_sum(subtrees.front()).wait;
  std::vector<Tensor> messages;
  std::vector<int64_t> sent, received;
  const int64_t own = bucket.counts[static_cast<size_t>(all_->rank())];
  int64_t next = 0, begin = 0;
  for (size_t r = 0; r < bucket.counts.size(); ++r) {
    if (static_cast<int64_t>(r) == all_->rank()) begin = next;
    for (const auto& subtree : subtrees) messages.push_back(subtree.narrow(0, next, bucket.counts[r]));
    sent.push_back(bucket.counts[r] * static_cast<int64_t>(subtrees.size()));
    received.push_back(own * static_cast<int64_t>(subtrees_[r].size()));
    next += bucket.counts[r];
  }
  const int64_t count = std::accumulate(received.begin(), received.end(), int64_t{0});
  auto pending = all_->all_to_all(at::cat(messages), std::move(sent), std::move(received));
  return [this, &bucket, pending = std::move(pending), flat = subtrees.front(), own, begin, count] {
    const Tensor message = pending.wait();
    if (own > 0) {
      std::vector<Tensor> arrived;
      for (int64_t first = 0; first < count; first += own) arrived.push_back(message.narrow(0, first, own));
      flat.narrow(0, begin, own).copy_(sum_of(arrived));
    }
    if (!owned_) all_->all_gather(flat, bucket.counts);
    return flat;
  };
}

void GradientSum::operator()(const std::function<void(int64_t)>& backward) {
  const Range here = range_of(all_->rank());
  const int64_t last = here.end - 1;
  if (!exact_ && !all_->is_distributed()) {
    for (int64_t i = here.begin; i <= last; ++i) backward(i);
    return;
  }
  std::vector<Flats> sums;  // of subtrees, in order, until the last micro-batch
  const auto& subtrees = subtrees_[static_cast<size_t>(all_->rank())];
  const auto merges = [&](int64_t batch) {
    for (const auto& range : subtrees) {
      if (exact_ && batch >= range.begin && batch < range.end) return merges_after(batch, range);
    }
    return int64_t{0};
  };
  for (int64_t i = here.begin; i < last; ++i) {
    backward(i);
    if (!exact_) continue;  // the next micro-batch adds to these gradients
    const at::NoGradGuard no_grad;
    Flats& leaf = sums.emplace_back();
    for (const auto& bucket : buckets_) leaf.push_back(flat_gradients(bucket));
    for (int64_t merge = merges(i); merge > 0; --merge) {
      for (size_t b = 0; b < buckets_.size(); ++b) sums[sums.size() - 2][b].add_(sums.back()[b]);
      sums.pop_back();
    }
  }
  std::vector<std::function<Tensor()>> under_way(buckets_.size());
  const auto send = [&](size_t b) {
    const at::NoGradGuard no_grad;
    std::vector<Tensor> list;
    for (const auto& sum : sums) list.push_back(sum[b]);
    list.push_back(flat_gradients(buckets_[b]));
    for (int64_t merge = merges(last); merge > 0; --merge) {
      list[list.size() - 2].add_(list.back());
      list.pop_back();
    }
    under_way[b] = begin_exchange(buckets_[b], list);
  };
  if (arrivals_) {
    arrivals_->listen(send);
    try {
      backward(last);
      arrivals_->end();
    } catch (...) {
      arrivals_->stop();
      throw;
    }
  } else {
    backward(last);
    for (size_t b = 0; b < buckets_.size(); ++b) send(b);
  }
  const at::NoGradGuard no_grad;
  for (size_t b = 0; b < buckets_.size(); ++b) set_gradients(buckets_[b], under_way[b]());
}

}  // namespace prism::dist
