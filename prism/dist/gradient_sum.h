#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "prism/dist/communicator.h"

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

  // Without owners, every process gets all sums. With owners, one for each parameter, a process gets those of its own
  // parameters, and the gradients of the others become undefined. A bucket has at least `bucket_elements`.
  GradientSum(std::shared_ptr<Communicator> all, std::vector<Tensor> parameters, MicroBatches batches, bool exact,
              std::vector<int64_t> owners = {}, int64_t bucket_elements = kBucketElements);
  ~GradientSum();
  GradientSum(GradientSum&&) = default;
  GradientSum& operator=(GradientSum&&) = delete;

  // Calls backward(i), which adds to the gradients of the parameters, for each micro-batch i of this process, and leaves
  // the sums over all micro-batches in the gradients. The gradients must be undefined before.
  void operator()(const std::function<void(int64_t)>& backward);

  // Starts to send the weights of each parameter from its owner to all processes. The result waits for them and writes
  // them.
  std::function<void()> gather_weights();

  const std::vector<int64_t>& owners() const { return owners_; }
  size_t buckets() const { return buckets_.size(); }

 private:
  struct Place {
    size_t parameter;
    int64_t begin;  // in the flat tensor
  };
  struct Bucket {
    std::vector<Place> places;    // those of rank 0 first, if there are owners
    std::vector<int64_t> counts;  // elements of the flat tensor that each rank adds up
    int64_t size = 0;             // of the flat tensor
  };
  struct Range {  // of micro-batches
    int64_t begin, end;
    int64_t middle() const { return (begin + end + 1) / 2; }
    bool is_within(const Range& other) const { return begin >= other.begin && end <= other.end; }
    bool touches(const Range& other) const { return begin < other.end && other.begin < end; }
    bool operator==(const Range&) const = default;
  };
  using Flats = std::vector<Tensor>;  // the sum of a subtree, one flat tensor for each bucket
  class Arrivals;

  Bucket make_bucket(std::vector<size_t> parameters) const;
  Range range_of(int64_t rank) const;
  static void find_subtrees(const Range& node, const Range& here, std::vector<Range>& found);
  static int64_t merges_after(int64_t batch, Range node);
  Tensor add(const Range& node, const std::function<Tensor(const Range&)>& leaf) const;
  Tensor flat_gradients(const Bucket& bucket);
  void set_gradients(const Bucket& bucket, const Tensor& flat);
  std::function<Tensor()> begin_exchange(const Bucket& bucket, const std::vector<Tensor>& subtrees) const;
  Tensor sum_of(const std::vector<Tensor>& arrived) const;

  std::shared_ptr<Communicator> all_;
  std::vector<Tensor> parameters_;
  MicroBatches batches_;
  bool exact_;
  std::vector<int64_t> owners_;
  std::vector<std::vector<Range>> subtrees_;  // of each rank
  std::vector<Bucket> buckets_;
  std::shared_ptr<Arrivals> arrivals_;
};

}  // namespace prism::dist
