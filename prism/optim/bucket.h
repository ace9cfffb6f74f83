#pragma once

#include <string>
#include <vector>

#include "prism/optim/options.h"

namespace prism {

// A bucket: the parts of a group's parameters that share shape, type and device, and their stacked state. A step works
// on whole buckets.
struct Bucket {
  struct Entry {
    size_t parameter;  // index within the group
    int64_t part;      // index of the part of a split parameter; −1 if it is whole
  };
  std::vector<Entry> entries;
  std::vector<int64_t> shape;  // of one entry as it is worked on: (m, n) for matrix rules
  at::ScalarType type;
  at::Device device;
  State state;
};

// The name of an entry's field among those of its parameter: "<field>", or "split.<k>.<field>" for a part.
std::string field_name(const Bucket::Entry& entry, const std::string& field);

// A bucket with only entry i; its state is a view.
Bucket single(const Bucket& bucket, size_t i);

// Sorts parameters into buckets, in order of first appearance, with initial state: every field of the options, and
// `master` if float32 copies of 16-bit weights are kept.
std::vector<Bucket> make_buckets(const Options& options, const std::vector<Tensor>& parameters,
                                 const std::vector<std::string>& names);

// Throws if the parameters, or the options that split or fold them, no longer give the bucket's shape.
void check_parts(const Bucket& bucket, const Options& options, const std::vector<Tensor>& parameters,
                 const std::vector<std::string>& names);

// Returns true if the bucket has the state that these options need.
bool has_state(const Bucket& bucket, const Options& options);

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

}  // namespace prism
