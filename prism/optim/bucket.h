#pragma once

#include <optional>
#include <string>
#include <vector>

#include "prism/optim/exchange.h"
#include "prism/optim/options.h"

namespace prism {

// A bucket: the parts of a group's parameters that share shape, type and device, and their stacked state. A step works
// on whole buckets. Several processes share a bucket with a layout: its parameters, gradients and the fields that
// `operands` advances are this process's parts of the matrices, or replicas. One process owns each entry: it shapes the
// whole matrix, and keeps the rest of its state.
struct Bucket {
  struct Entry {
    size_t parameter;    // index within the group
    int64_t part;        // index of the part of a split parameter; −1 if it is whole
    int64_t first = 0;   // the first row of that part in what this process holds of the parameter
    int64_t owner = -1;  // with a layout: the rank that shapes it; −1 if none is chosen yet
  };
  std::vector<Entry> entries;
  std::vector<int64_t> shape;  // of one entry as it is worked on: (m, n) for matrix rules
  at::ScalarType type;
  at::Device device;
  State state;
  LayoutPtr layout = {};  // null: this process shapes its matrices
  State owned = {};       // with a layout: the other fields, of the entries owned here

  bool is_owned_here(const Entry& entry) const { return layout && entry.owner == layout->exchange->rank(); }
};

// The layout of a parameter; null if it is whole.
LayoutPtr layout_of(const std::vector<LayoutPtr>& layouts, size_t parameter);

// The name of an entry's field among those of its parameter: "<field>", or "split.<k>.<field>" for a part.
std::string field_name(const Bucket::Entry& entry, const std::string& field);

// Calls f(entry, field, view) for each field of each entry of a bucket, those of the owner included.
template <class Function>
void each_field(const Bucket& bucket, const Function& f) {
  int64_t owned = 0;
  for (size_t i = 0; i < bucket.entries.size(); ++i) {
    const auto& entry = bucket.entries[i];
    for (const auto& [field, stack] : bucket.state) f(entry, field, stack[static_cast<int64_t>(i)]);
    if (!bucket.is_owned_here(entry)) continue;
    for (const auto& [field, stack] : bucket.owned) f(entry, field, stack[owned]);
    ++owned;
  }
}

// A bucket with only entry i; its state is a view.
Bucket single(const Bucket& bucket, size_t i);

// Sorts parameters into buckets, in order of first appearance, with initial state: every field of the options, and
// `master` if float32 copies of 16-bit weights are kept. `layouts` are those of the parameters, null for whole ones; none
// if all are whole. Buckets with a layout have no owners yet, and no state.
std::vector<Bucket> make_buckets(const Options& options, const std::vector<Tensor>& parameters,
                                 const std::vector<std::string>& names, const std::vector<LayoutPtr>& layouts = {});

// Cuts a bucket with owners into rounds, in each of which every owner has work: as many of its entries as fit into a
// stack. While one round is shaped, those before and after it travel. Adds initial state, that of the owners included.
std::vector<Bucket> rounds_of(const Options& options, const Bucket& bucket, const std::vector<Tensor>& parameters);

// The fields of `bucket.state`, and those of `bucket.owned`.
std::vector<Field> fields_here(const Options& options, const Bucket& bucket);
std::vector<Field> fields_of_owner(const Options& options, const Bucket& bucket);

// The shape of a whole entry as it is worked on.
std::vector<int64_t> whole_shape(const Options& options, const Bucket& bucket);

// Returns the part of a saved or held state tensor that belongs into `target`, a field of an entry: the tensor itself,
// or this process's part of a whole one. `layout` is that of the parameter; null if it is whole.
Tensor part_here(const Tensor& value, const LayoutPtr& layout, const Bucket& bucket, const Tensor& target);

// Throws if the parameters, or the options that split or fold them, no longer give the bucket's shape.
void check_parts(const Bucket& bucket, const Options& options, const std::vector<Tensor>& parameters,
                 const std::vector<std::string>& names, const std::vector<LayoutPtr>& layouts);

// Returns true if the bucket has the state that these options need.
bool has_state(const Bucket& bucket, const Options& options);

// The part of its parameter's tensor that belongs to an entry, as a view.
Tensor part_of(const Options& options, const Bucket& bucket, const Bucket::Entry& entry,
               const std::vector<Tensor>& tensors);

// The parts of these tensors that belong to the bucket's entries, as views. Every tensor must be defined.
std::vector<Tensor> parts_of(const Options& options, const Bucket& bucket, const std::vector<Tensor>& tensors);

// Stacks parts in the shape of the bucket.
Tensor stacked(const std::vector<Tensor>& parts, at::IntArrayRef shape, at::ScalarType type);

// The type to compute in: float32, or float64 for float64 weights or state.
at::ScalarType compute_type(const Options& options, at::ScalarType weights);

// Returns true if any entry has a gradient.
bool has_gradient(const Bucket& bucket, const std::vector<Tensor>& gradients);

// Stacks the gradients in the type to compute in; negated with `maximize`.
Tensor stacked_gradients(const Options& options, const Bucket& bucket, const std::vector<Tensor>& gradients);

// An entry with a gradient whose elements can be reached through plain pointers.
struct DenseEntry {
  int64_t index;  // in the bucket's stacks
  Tensor G, W;    // contiguous; G is a copy if the gradient is not
};

// Lists the entries that have gradients. Returns nothing if weights or state are not contiguous, if a field other than
// the step counter is not of `state_type`, or if the gradients have several types.
std::optional<std::vector<DenseEntry>> dense_entries(const Options& options, const Bucket& bucket,
                                                     const std::vector<Tensor>& parameters,
                                                     const std::vector<Tensor>& gradients, at::ScalarType state_type);

}  // namespace prism
