#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "prism/dist/communicator.h"
#include "prism/dist/parts.h"

namespace prism::dist {

// A step is cut into M micro-batches, numbered over all processes; process r of N works on r·M/N … (r + 1)·M/N − 1.
struct MicroBatches {
  int64_t all = 1;    // M
  int64_t first = 0;  // of this process
  int64_t here = 1;   // M/N
};

// Adds the gradients of all micro-batches of a step.
//
// The fast way adds those of one process in order, and then the processes' sums as the transport likes. The exact way adds
// in a fixed binary tree over the micro-batches,
//   S(a, b) = S(a, c) + S(c, b) with c = ⌈(a + b)/2⌉,
// so that the sum of M micro-batches is the same, bit for bit, on any number of processes. Each process adds the largest
// subtrees that lie within its micro-batches, and sends them to the process that adds the rest for a range of elements.
// If M/N and N are powers of two, that is one subtree for each process, and the traffic is that of the fast way.
//
// Gradients travel in buckets, the last parameters first, as the backward pass reaches them. During the last backward
// pass a bucket leaves as soon as its gradients are complete, while the pass goes on.
class GradientSum {
 public:
  static constexpr int64_t kBucketElements = int64_t{4} << 20;  // 16 MiB of float32

  // Without parts, every process gets all sums. With parts, which together are all parameters, a process gets those of
  // its own: stepped()[p] has the gradient, and the gradients of the parameters themselves become undefined. A bucket has
  // at least `bucket_elements`.
  GradientSum(std::shared_ptr<Communicator> all, std::vector<Tensor> parameters, MicroBatches batches, bool exact,
              const std::vector<Part>& parts = {}, int64_t bucket_elements = kBucketElements);
  ~GradientSum();
  GradientSum(GradientSum&&) = default;
  GradientSum& operator=(GradientSum&&) = delete;

  // Calls backward(i), which adds to the gradients of the parameters, for each micro-batch i of this process, and leaves
  // the sums over all micro-batches in the gradients. The gradients must be undefined before.
  void operator()(const std::function<void(int64_t)>& backward);

  // The tensor of each parameter that this process steps (stepped_by); without parts, the parameters.
  const std::vector<Tensor>& stepped() const { return stepped_; }

  size_t buckets() const { return buckets_.size(); }

 private:
  struct Range {  // of micro-batches
    int64_t begin, end;
    int64_t middle() const { return (begin + end + 1) / 2; }
    bool is_within(const Range& other) const { return begin >= other.begin && end <= other.end; }
    bool touches(const Range& other) const { return begin < other.end && other.begin < end; }
    bool operator==(const Range&) const = default;
  };
  using Flats = std::vector<Tensor>;  // the sum of a subtree, one flat tensor for each bucket
  class Arrivals;

  FlatParts make_bucket(std::vector<Part> parts) const;
  Range range_of(int64_t rank) const;
  static void find_subtrees(const Range& node, const Range& here, std::vector<Range>& found);
  static int64_t merges_after(int64_t batch, Range node);
  Tensor add(const Range& node, const std::function<Tensor(const Range&)>& leaf) const;
  Tensor flat_gradients(const FlatParts& bucket);
  void set_gradients(const FlatParts& bucket, const Tensor& flat);
  std::function<Tensor()> begin_exchange(const FlatParts& bucket, const std::vector<Tensor>& subtrees) const;
  Tensor sum_of(const std::vector<Tensor>& arrived) const;

  std::shared_ptr<Communicator> all_;
  std::vector<Tensor> parameters_;
  MicroBatches batches_;
  bool exact_;
  bool owned_;  // each process gets the sums of its parts only
  std::vector<Tensor> stepped_;
  std::vector<std::vector<Range>> subtrees_;  // of each rank
  std::vector<FlatParts> buckets_;
  std::shared_ptr<Arrivals> arrivals_;
};

}  // namespace prism::dist
