#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace prism {

using at::Tensor;

// The processes of a group that hold parts of the same parameters, and what they do together. All of them must make the
// same calls in the same order.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;

  // A message under way. `wait` returns the elements received, those of rank 0 first.
  struct Pending {
    std::function<Tensor()> wait;
  };

  // Sends sent[r] elements of the flat tensor `input` to each rank r, in order, and receives received[r] from it.
  Pending all_to_all(const Tensor& input, std::vector<int64_t> sent, std::vector<int64_t> received);

  // Sets the type in which from_owners sends updates: a shorter one rounds them, equally on all ranks. By default they
  // travel as they are.
  void send_updates_as(std::optional<at::ScalarType> type) { update_type_ = type; }
  at::ScalarType update_type(at::ScalarType computed) const { return update_type_.value_or(computed); }

  // Replaces each value by its maximum over all ranks.
  virtual void maximum(Tensor& values) = 0;

  // Replaces the values of all ranks by those of `root`.
  virtual void broadcast(Tensor& values, int64_t root) = 0;

  // The bytes that all_to_all has sent from here to other ranks.
  int64_t bytes_sent() const { return bytes_sent_; }

 protected:
  virtual Pending start(Tensor input, std::vector<int64_t> sent, std::vector<int64_t> received) = 0;

 private:
  std::optional<at::ScalarType> update_type_;
  int64_t bytes_sent_ = 0;
};

// A range of indices in each dimension of a tensor.
struct Box {
  std::vector<int64_t> begin, size;

  int64_t numel() const;
  Tensor of(const Tensor& tensor, int64_t skipped_dimensions = 0) const;  // a view
  bool operator==(const Box&) const = default;
};

// A tensor cut into one box for each rank of a group. Boxes may be empty and of different sizes.
struct Layout {
  std::vector<int64_t> shape;  // of the whole tensor
  std::vector<Box> boxes;      // of each rank
  std::shared_ptr<Exchange> exchange;

  const Box& here() const { return boxes.at(exchange->rank()); }
  bool is_cut(size_t dimension) const;

  // Returns true if every rank holds all of the tensor: only the work on it is shared.
  bool is_replicated() const;

  // The layout of the indices begin … begin + length − 1 of one dimension.
  Layout part(size_t dimension, int64_t begin, int64_t length) const;

  bool operator==(const Layout&) const = default;
};
using LayoutPtr = std::shared_ptr<const Layout>;

// Sends the parts of a stack of tensors to the ranks that own them. `parts` are stacks (B, box of this rank…), of which
// undefined ones are left out; owners[i] is the rank that owns entry i. The result waits for the message and returns
// stacks (entries owned here, whole shape…), undefined where `parts` are. Nothing is sent if the layout is replicated.
std::function<std::vector<Tensor>()> to_owners(const std::vector<Tensor>& parts, const Layout& layout,
                                               const std::vector<int64_t>& owners);

// Sends `whole` (entries owned here, whole shape…) back from the owners. The result waits and returns (B, box of this
// rank…), rounded to the exchange's update_type().
std::function<Tensor()> from_owners(const Tensor& whole, const Layout& layout, const std::vector<int64_t>& owners);

// Puts the whole tensor together on every rank, each of which gives its box; `part` may have another shape.
Tensor assembled(const Tensor& part, const Layout& layout);

// Cuts this rank's part out of a whole state tensor: in each dimension in which `whole` is as long as the whole
// parameter and `sizes` as long as this rank's box. Returns `whole` if the result would not be of these sizes.
Tensor cut(const Tensor& whole, const Layout& layout, at::IntArrayRef sizes);

}  // namespace prism
