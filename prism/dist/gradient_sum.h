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
// Where M/N and N are powers of two that is one subtree for each process, and the traffic is that of the fast way.
class GradientSum {
 public:
  // Without owners, every process gets all sums. With owners, one for each parameter, a process gets those of its own
  // parameters, and the gradients of the others become undefined.
  GradientSum(std::shared_ptr<Communicator> all, std::vector<Tensor> parameters, MicroBatches batches, bool exact,
              std::vector<int64_t> owners = {});

  // Calls backward(i), which adds to the gradients of the parameters, for each micro-batch i of this process, and leaves
  // the sums over all micro-batches in the gradients. The gradients must be undefined before.
  void operator()(const std::function<void(int64_t)>& backward);

  // Sends the weights of each parameter from its owner to all processes.
  void gather_weights();

  const std::vector<int64_t>& owners() const { return owners_; }

 private:
  struct Place {
    size_t parameter;
    int64_t begin;  // in the flat tensor
  };
  struct Range {  // of micro-batches
    int64_t begin, end;
    int64_t middle() const { return (begin + end + 1) / 2; }
    bool is_within(const Range& other) const { return begin >= other.begin && end <= other.end; }
    bool touches(const Range& other) const { return begin < other.end && other.begin < end; }
    bool operator==(const Range&) const = default;
  };
  using Subtree = std::pair<Range, Tensor>;  // its sum, flat

  Range range_of(int64_t rank) const;
  static void find_subtrees(const Range& node, const Range& here, std::vector<Range>& found);
  Tensor add(const Range& node, const std::function<Tensor(const Range&)>& leaf) const;
  Tensor flat_gradients();
  void set_gradients(const Tensor& flat);
  Tensor exchanged(const std::vector<Tensor>& subtrees, const std::vector<std::vector<Range>>& of_rank) const;

  std::shared_ptr<Communicator> all_;
  std::vector<Tensor> parameters_;
  MicroBatches batches_;
  bool exact_;
  std::vector<int64_t> owners_;
  std::vector<Place> places_;
  std::vector<int64_t> counts_;  // elements of the flat tensor that each rank adds up
};

}  // namespace prism::dist
