#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "prism/dist/communicator.h"
#include "prism/dist/parts.h"

namespace prism::dist {

// Sends the weights that each process has stepped to all others. They leave in buckets during the optimizer's step: a
// bucket leaves as soon as all its weights of this process are written, while the optimizer goes on with the next.
class WeightGather {
 public:
  // `stepped` are the tensors that this process steps (stepped_by). `order` lists the parameters in the order in which
  // the optimizer steps them; all processes must give the same one. A bucket has at least `bucket_elements`.
  WeightGather(std::shared_ptr<Communicator> all, std::vector<Tensor> parameters, const std::vector<Part>& parts,
               const std::vector<Tensor>& stepped, const std::vector<size_t>& order, int64_t bucket_elements);

  // Call it for each stepped tensor once its weights are written, or launched on a GPU. Not needed for a step that
  // leaves a tensor as it is.
  void written(const Tensor& stepped);

  // Sends the rest, waits for the weights of the others and writes them.
  void finish();

  size_t buckets() const { return buckets_.size(); }

 private:
  void send();

  std::shared_ptr<Communicator> all_;
  std::vector<Tensor> parameters_;
  std::vector<FlatParts> buckets_;
  std::unordered_map<const at::TensorImpl*, size_t> bucket_of_;  // each stepped tensor
  std::vector<int64_t> stepped_here_, missing_;                  // tensors of each bucket
  std::vector<Exchange::Pending> under_way_;
};

}  // namespace prism::dist
