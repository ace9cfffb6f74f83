#include "prism/optim/exchange.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <c10/util/accumulate.h>

#include <algorithm>

namespace prism {
namespace {

// The entries of each owner, in order.
std::vector<std::vector<int64_t>> by_owner(const std::vector<int64_t>& owners, int64_t ranks) {
  std::vector<std::vector<int64_t>> entries(ranks);
  for (size_t i = 0; i < owners.size(); ++i) entries.at(owners[i]).push_back(static_cast<int64_t>(i));
  return entries;
}

std::vector<int64_t> with_count(int64_t count, const std::vector<int64_t>& shape) {
  std::vector<int64_t> sizes = {count};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return sizes;
}

Tensor indices(const std::vector<int64_t>& values, at::Device device) {
  return at::tensor(values, at::TensorOptions().dtype(at::kLong)).to(device);
}

}  // namespace

Exchange::Pending Exchange::all_to_all(const Tensor& input, std::vector<int64_t> sent, std::vector<int64_t> received) {
  const int64_t elements = c10::sum_integers(sent) - sent.at(rank());
  bytes_sent_ += elements * static_cast<int64_t>(input.itemsize());
  return start(input, std::move(sent), std::move(received));
}

int64_t Box::numel() const { return c10::multiply_integers(size); }

Tensor Box::of(const Tensor& tensor, int64_t skipped_dimensions) const {
  Tensor view = tensor;
  for (size_t d = 0; d < size.size(); ++d)
    view = view.narrow(static_cast<int64_t>(d) + skipped_dimensions, begin[d], size[d]);
  return view;
}

bool Layout::is_cut(size_t dimension) const {
  return std::any_of(boxes.begin(), boxes.end(),
                     [&](const Box& box) { return box.size.at(dimension) != shape.at(dimension); });
}

bool Layout::is_replicated() const {
  return c10::multiply_integers(shape) > 0 &&
         std::all_of(boxes.begin(), boxes.end(), [&](const Box& box) { return box.size == shape; });
}

Layout Layout::part(size_t dimension, int64_t begin, int64_t length) const {
  Layout result = *this;
  result.shape.at(dimension) = length;
  for (auto& box : result.boxes) {
    const int64_t first = std::clamp(box.begin[dimension] - begin, int64_t{0}, length);
    const int64_t end = std::clamp(box.begin[dimension] + box.size[dimension] - begin, first, length);
    box.begin[dimension] = first;
    box.size[dimension] = end - first;
  }
  return result;
}

std::function<std::vector<Tensor>()> to_owners(const std::vector<Tensor>& parts, const Layout& layout,
                                               const std::vector<int64_t>& owners) {
  const auto entries = by_owner(owners, layout.exchange->size());
  const int64_t owned = static_cast<int64_t>(entries[layout.exchange->rank()].size());
  const Tensor& first = parts.front();
  if (layout.is_replicated()) {
    const Tensor chosen = indices(entries[layout.exchange->rank()], first.device());
    std::vector<Tensor> wholes;
    for (const auto& part : parts) wholes.push_back(part.defined() ? part.index_select(0, chosen) : part);
    return [wholes = std::move(wholes)] { return wholes; };
  }
  std::vector<bool> is_sent;
  for (const auto& part : parts) is_sent.push_back(part.defined());
  const int64_t stacks = std::count(is_sent.begin(), is_sent.end(), true);
  std::vector<Tensor> messages;
  std::vector<int64_t> sent, received;
  for (size_t r = 0; r < entries.size(); ++r) {
    const Tensor chosen = indices(entries[r], first.device());
    for (const auto& part : parts) {
      if (part.defined()) messages.push_back(part.index_select(0, chosen).flatten());
    }
    sent.push_back(stacks * static_cast<int64_t>(entries[r].size()) * layout.here().numel());
    received.push_back(stacks * owned * layout.boxes[r].numel());
  }
  auto pending = layout.exchange->all_to_all(at::cat(messages), std::move(sent), std::move(received));
  return [pending = std::move(pending), layout, owned, options = first.options(), is_sent] {
    const Tensor message = pending.wait();
    std::vector<Tensor> wholes;
    for (const bool defined : is_sent) {
      wholes.push_back(defined ? at::empty(with_count(owned, layout.shape), options) : Tensor());
    }
    int64_t next = 0;
    for (const auto& box : layout.boxes) {
      for (const auto& whole : wholes) {
        if (!whole.defined()) continue;
        const int64_t count = owned * box.numel();
        box.of(whole, 1).copy_(message.narrow(0, next, count).view(with_count(owned, box.size)));
        next += count;
      }
    }
    return wholes;
  };
}

std::function<Tensor()> from_owners(const Tensor& whole, const Layout& layout, const std::vector<int64_t>& owners) {
  const auto entries = by_owner(owners, layout.exchange->size());
  const auto type = whole.scalar_type();
  const Tensor stack = whole.to(layout.exchange->update_type(type)).reshape(with_count(whole.size(0), layout.shape));
  std::vector<Tensor> messages;
  std::vector<int64_t> sent, received, order;
  for (size_t r = 0; r < entries.size(); ++r) {
    messages.push_back(layout.boxes[r].of(stack, 1).flatten());
    sent.push_back(messages.back().numel());
    received.push_back(static_cast<int64_t>(entries[r].size()) * layout.here().numel());
    order.insert(order.end(), entries[r].begin(), entries[r].end());
  }
  auto pending = layout.exchange->all_to_all(at::cat(messages), std::move(sent), std::move(received));
  return [pending = std::move(pending), order = std::move(order), size = layout.here().size, type] {
    const Tensor message = pending.wait().view(with_count(static_cast<int64_t>(order.size()), size)).to(type);
    return at::empty_like(message).index_copy_(0, indices(order, message.device()), message);
  };
}

Tensor assembled(const Tensor& part, const Layout& layout) {
  const Tensor whole = at::empty(layout.shape, part.options());
  for (int64_t r = 0; r < layout.exchange->size(); ++r) {
    const Box& box = layout.boxes[r];
    if (box.numel() == 0) continue;
    Tensor values =
        r == layout.exchange->rank() ? part.reshape(box.size).contiguous() : at::empty(box.size, part.options());
    layout.exchange->broadcast(values, r);
    box.of(whole).copy_(values);
  }
  return whole;
}

Tensor cut(const Tensor& whole, const Layout& layout, at::IntArrayRef sizes) {
  Tensor part = whole;
  const Box& box = layout.here();
  const int64_t dimensions =
      std::min({whole.dim(), static_cast<int64_t>(sizes.size()), static_cast<int64_t>(layout.shape.size())});
  for (int64_t d = 0; d < dimensions; ++d) {
    if (part.size(d) == layout.shape[d] && sizes[d] == box.size[d]) part = part.narrow(d, box.begin[d], box.size[d]);
  }
  return part.sizes() == sizes ? part : whole;
}

}  // namespace prism
