#pragma once

#include <string>
#include <vector>

#include "prism/optim/options.h"

namespace prism {

// A bucket: the parts of a group's parameters that share shape, type and device, and their stacked state. All the work
// of a step is done on whole buckets.
struct Bucket {
  struct Entry {
    size_t parameter;  // index within the group
    int64_t part;      // which part of a split parameter; −1 when it is whole
  };
  std::vector<Entry> entries;
  std::vector<int64_t> shape;  // of one entry as it is worked on: (m, n) for matrix rules
  at::ScalarType type;
  at::Device device;
  State state;
};

// "<field>", or "split.<k>.<field>" for a part: the name of an entry's field among those of its parameter.
std::string field_name(const Bucket::Entry& entry, const std::string& field);

// The bucket of entry i alone; its state is a view.
Bucket single(const Bucket& bucket, size_t i);

// Sorts parameters into buckets, in order of first appearance, with fresh state: every field of the options, and
// `master` where float32 copies of 16-bit weights are kept.
std::vector<Bucket> make_buckets(const Options& options, const std::vector<Tensor>& parameters,
                                 const std::vector<std::string>& names);

// Refuses parameters, and options that split or fold them, that are not of the bucket's shape any more.
void check_parts(const Bucket& bucket, const Options& options, const std::vector<Tensor>& parameters,
                 const std::vector<std::string>& names);

// Whether the bucket has the state that these options ask for.
bool has_state(const Bucket& bucket, const Options& options);

// The parts that a bucket's entries are of these tensors, as views; every one must be defined.
std::vector<Tensor> parts_of(const Options& options, const Bucket& bucket, const std::vector<Tensor>& tensors);

// Parts stacked in the shape of the bucket.
Tensor stacked(const std::vector<Tensor>& parts, at::IntArrayRef shape, at::ScalarType type);

// float32, or float64 for float64 weights or state.
at::ScalarType compute_type(const Options& options, at::ScalarType weights);

// Whether any entry has a gradient.
bool has_gradient(const Bucket& bucket, const std::vector<Tensor>& gradients);

// Gradients stacked in the type of computation; negative with `maximize`.
Tensor stacked_gradients(const Options& options, const Bucket& bucket, const std::vector<Tensor>& gradients);

}  // namespace prism
