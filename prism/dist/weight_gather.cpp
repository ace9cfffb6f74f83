#include "prism/dist/weight_gather.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <utility>

namespace prism::dist {

WeightGather::WeightGather(std::shared_ptr<Communicator> all, std::vector<Tensor> parameters,
                           const std::vector<Part>& parts, const std::vector<Tensor>& stepped,
                           const std::vector<size_t>& order, int64_t bucket_elements)
    : all_(std::move(all)), parameters_(std::move(parameters)) {
  std::vector<Part> open;
  int64_t elements = 0;
  stepped_here_.push_back(0);
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t p = order[i];
    for (const auto& part : parts) {
      if (part.parameter == p) open.push_back(part);
    }
    if (stepped[p].defined()) {
      bucket_of_[stepped[p].unsafeGetTensorImpl()] = buckets_.size();
      ++stepped_here_.back();
    }
    elements += parameters_[p].numel();
    if (i + 1 < order.size() && elements < bucket_elements) continue;
    buckets_.emplace_back(std::exchange(open, {}), all_->size());
    if (i + 1 < order.size()) stepped_here_.push_back(0);
    elements = 0;
  }
  missing_ = stepped_here_;
}

void WeightGather::written(const Tensor& stepped) {
  --missing_[bucket_of_.at(stepped.unsafeGetTensorImpl())];
  while (under_way_.size() < buckets_.size() && missing_[under_way_.size()] <= 0) send();
  all_->progress();
}

// Sends the next bucket: all processes send them in the same order.
void WeightGather::send() {
  const at::NoGradGuard no_grad;
  const auto& bucket = buckets_[under_way_.size()];
  const Tensor flat = at::zeros({bucket.size}, parameters_.front().options().requires_grad(false));
  for (const auto& [part, begin] : bucket.places) {
    if (part.owner == all_->rank()) flat.narrow(0, begin, part.size).copy_(part.of(parameters_[part.parameter]));
  }
  under_way_.push_back(all_->begin_all_gather(flat, bucket.counts));
}

void WeightGather::finish() {
  const at::NoGradGuard no_grad;
  while (under_way_.size() < buckets_.size()) send();
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Tensor flat = under_way_[b].wait();
    for (const auto& [part, begin] : buckets_[b].places) {
      if (part.owner != all_->rank()) part.of(parameters_[part.parameter]).copy_(flat.narrow(0, begin, part.size));
    }
  }
  under_way_.clear();
  missing_ = stepped_here_;
}

}  // namespace prism::dist
