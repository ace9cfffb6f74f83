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
  std::vector<int64_t> shape;  // of one entry as it is worked on: (m, n) for matrix methods
  at::ScalarType type;
  at::Device device;
  State state;
};

// "<parameter>", or "<parameter>.split.<k>" for a part: the name under which an entry's state is saved.
std::string entry_name(const std::vector<std::string>& names, const Bucket::Entry& entry);

// The bucket of entry i alone; its state is a view.
Bucket single(const Bucket& bucket, size_t i);

// Sorts parameters into buckets, in order of first appearance, with fresh state. `first` is the index of parameters[0]
// within its group.
std::vector<Bucket> make_buckets(const Options& options, const std::vector<Tensor>& parameters,
                                 const std::vector<std::string>& names, size_t first = 0);

// Fresh state for a bucket: every field of the options, and `master` where float32 copies of 16-bit weights are kept.
State make_state(const Options& options, const Bucket& bucket, const std::vector<Tensor>& weights);

// Follows parameters that were moved to another device or type since the state was made; a bucket that came apart is
// refused by name.
void follow(Bucket& bucket, const Options& options, const std::vector<Tensor>& parameters,
            const std::vector<std::string>& names);

struct StepInputs {
  Tensor lr = {};          // a number on the host or on the device
  Tensor apply = {};       // a boolean on a device: false changes nothing. Undefined: always apply
  Tensor grad_scale = {};  // on a device; gradients are divided by it; undefined: 1
  Tensor gamma = {};       // PRISM's γ as a number on the device, for `capturable`; undefined: that of the options
};

// One step of a bucket, in plain ATen: the specification. An undefined gradient leaves its parameter and state
// untouched.
void step_bucket(const Options& options, Bucket& bucket, const std::vector<Tensor>& parameters,
                 const std::vector<Tensor>& gradients, const StepInputs& inputs);

// One step of a group's buckets: by the kernels of prism/cuda where they know the bucket (cuda_step.h), else by
// step_bucket. `workspace` is scratch memory for the kernels, bytes on the device of the buckets, and undefined or of
// any size at first: while it is too small nothing is done and the size to come back with is returned, otherwise 0.
// Whoever captures a step into a graph keeps it as long as the graph.
int64_t step_buckets(const Options& options, std::vector<Bucket>& buckets, const std::vector<Tensor>& parameters,
                     const std::vector<Tensor>& gradients, const StepInputs& inputs, const Tensor& workspace);

// Whether the kernels would do all of that.
bool kernels_take(const Options& options, const std::vector<Bucket>& buckets, const std::vector<Tensor>& parameters,
                  const std::vector<Tensor>& gradients);

// The weights of a bucket's entries, as views, and their gradients stacked in the type of computation; every gradient
// must be defined.
std::vector<Tensor> weights_of(const Options& options, const Bucket& bucket, const std::vector<Tensor>& parameters);
Tensor stacked_gradients(const Options& options, const Bucket& bucket, const std::vector<Tensor>& gradients);

}  // namespace prism
