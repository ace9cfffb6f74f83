#include "prism/dist/gradient_sum.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <numeric>

namespace prism::dist {
namespace {

// Every parameter begins on a cache line of its own, as a tensor by itself does.
constexpr int64_t kAlignment = 16;

int64_t aligned(int64_t elements) { return (elements + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

GradientSum::GradientSum(std::shared_ptr<Communicator> all, std::vector<Tensor> parameters, MicroBatches batches,
                         bool exact, std::vector<int64_t> owners)
    : all_(std::move(all)),
      parameters_(std::move(parameters)),
      batches_(batches),
      exact_(exact),
      owners_(std::move(owners)),
      counts_(static_cast<size_t>(all_->size()), 0) {
  for (const auto& parameter : parameters_) {
    TORCH_CHECK(parameter.scalar_type() == parameters_.front().scalar_type(),
                "several processes: expected parameters of one type, got ", parameter.scalar_type(), " beside ",
                parameters_.front().scalar_type());
  }
  std::vector<size_t> order(parameters_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (!owners_.empty())
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return owners_[a] < owners_[b]; });
  int64_t next = 0;
  for (const size_t p : order) {
    const int64_t length = aligned(parameters_[p].numel());
    places_.push_back({p, next});
    next += length;
    if (!owners_.empty()) counts_.at(static_cast<size_t>(owners_[p])) += length;
  }
  if (!owners_.empty()) return;
  const int64_t share = aligned((next + all_->size() - 1) / all_->size());
  for (size_t r = 0; r < counts_.size(); ++r)
    counts_[r] = std::clamp<int64_t>(next - static_cast<int64_t>(r) * share, 0, share);
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

// Returns the sum of a subtree. `leaf` returns the sums that exist already, and nothing for other nodes.
Tensor GradientSum::add(const Range& node, const std::function<Tensor(const Range&)>& leaf) const {
  Tensor sum = leaf(node);
  if (sum.defined()) return sum;
  sum = add({node.begin, node.middle()}, leaf);
  return sum.add_(add({node.middle(), node.end}, leaf));
}

// Moves the gradients into one flat tensor.
Tensor GradientSum::flat_gradients() {
  const auto& place = places_.back();
  const Tensor flat = at::zeros({place.begin + aligned(parameters_[place.parameter].numel())},
                                parameters_.front().options().requires_grad(false));
  for (const auto& [p, begin] : places_) {
    Tensor& gradient = parameters_[p].mutable_grad();
    if (gradient.defined()) flat.narrow(0, begin, gradient.numel()).copy_(gradient.flatten());
    gradient = Tensor();
  }
  return flat;
}

// Makes the gradients views of the flat tensor: all of them, or those owned here.
void GradientSum::set_gradients(const Tensor& flat) {
  // For autograd these are tensors of their own: zero_grad refuses to detach views.
  const at::AutoDispatchBelowADInplaceOrView untracked;
  for (const auto& [p, begin] : places_) {
    Tensor& parameter = parameters_[p];
    const bool is_here = owners_.empty() || owners_[p] == all_->rank();
    parameter.mutable_grad() = is_here ? flat.narrow(0, begin, parameter.numel()).view(parameter.sizes()) : Tensor();
  }
}

// Sends each rank its range of elements, and returns the sum over all subtrees for this rank's range. of_rank[r] are the
// subtrees of rank r; `subtrees` are the sums of this rank's.
Tensor GradientSum::exchanged(const std::vector<Tensor>& subtrees,
                              const std::vector<std::vector<Range>>& of_rank) const {
  std::vector<Tensor> messages;
  std::vector<int64_t> sent, received;
  const int64_t own = counts_[static_cast<size_t>(all_->rank())];
  int64_t begin = 0;
  for (size_t r = 0; r < counts_.size(); ++r) {
    for (const auto& subtree : subtrees) messages.push_back(subtree.narrow(0, begin, counts_[r]));
    sent.push_back(counts_[r] * static_cast<int64_t>(subtrees.size()));
    received.push_back(own * static_cast<int64_t>(of_rank[r].size()));
    begin += counts_[r];
  }
  const Tensor message = all_->all_to_all(at::cat(messages), std::move(sent), std::move(received)).wait();
  std::vector<Subtree> arrived;
  for (const auto& ranges : of_rank) {
    for (const auto& range : ranges)
      arrived.emplace_back(range, message.narrow(0, own * static_cast<int64_t>(arrived.size()), own));
  }
  if (!exact_) {
    for (size_t i = 1; i < arrived.size(); ++i) arrived.front().second.add_(arrived[i].second);
    return arrived.front().second;
  }
  return add({0, batches_.all}, [&](const Range& node) {
    for (const auto& [range, sum] : arrived) {
      if (range == node) return sum;
    }
    return Tensor();
  });
}

void GradientSum::operator()(const std::function<void(int64_t)>& backward) {
  const Range here = range_of(all_->rank());
  if (!exact_ && owners_.empty()) {
    for (int64_t i = here.begin; i < here.end; ++i) backward(i);
    if (!all_->is_distributed()) return;
    const at::NoGradGuard no_grad;
    Tensor flat = flat_gradients();
    all_->sum(flat);
    return set_gradients(flat);
  }
  std::vector<std::vector<Range>> of_rank;
  std::vector<Tensor> subtrees;
  for (int64_t r = 0; r < all_->size(); ++r) {
    auto& ranges = of_rank.emplace_back();
    if (exact_)
      find_subtrees({0, batches_.all}, range_of(r), ranges);
    else
      ranges.push_back(range_of(r));
  }
  for (const auto& range : of_rank[static_cast<size_t>(all_->rank())]) {
    const auto leaf = [&](const Range& node) {
      if (exact_ && node.end - node.begin > 1) return Tensor();
      for (int64_t i = node.begin; i < node.end; ++i) backward(i);
      const at::NoGradGuard no_grad;
      return flat_gradients();
    };
    subtrees.push_back(add(range, leaf));
  }
  const at::NoGradGuard no_grad;
  if (!all_->is_distributed()) return set_gradients(subtrees.front());
  const Tensor sum = exchanged(subtrees, of_rank);
  int64_t begin = 0;
  for (int64_t r = 0; r < all_->rank(); ++r) begin += counts_[static_cast<size_t>(r)];
  Tensor flat = subtrees.front();
  flat.narrow(0, begin, sum.numel()).copy_(sum);
  if (owners_.empty()) all_->all_gather(flat, counts_);
  set_gradients(flat);
}

void GradientSum::gather_weights() {
  const at::NoGradGuard no_grad;
  Tensor flat = at::zeros({c10::sum_integers(counts_)}, parameters_.front().options().requires_grad(false));
  for (const auto& [p, begin] : places_) {
    if (owners_.at(p) == all_->rank()) flat.narrow(0, begin, parameters_[p].numel()).copy_(parameters_[p].flatten());
  }
  all_->all_gather(flat, counts_);
  for (const auto& [p, begin] : places_) {
    if (owners_[p] != all_->rank())
      parameters_[p].copy_(flat.narrow(0, begin, parameters_[p].numel()).view(parameters_[p].sizes()));
  }
}

}  // namespace prism::dist
