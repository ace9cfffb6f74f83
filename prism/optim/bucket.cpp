#include "prism/optim/bucket.h"

#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>

#include <algorithm>

#include "prism/optim/matrix.h"

namespace prism {
namespace {

bool is_16_bit(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

at::ScalarType state_type(const Options& options, at::ScalarType weights) {
  switch (options.state_dtype()) {
    case StateType::Float32:
      return at::kFloat;
    case StateType::Float64:
      return at::kDouble;
    case StateType::BFloat16:
      return at::kBFloat16;
    case StateType::Auto:
      break;
  }
  return weights == at::kDouble ? at::kDouble : at::kFloat;
}

at::ScalarType field_type(Storage storage, const Options& options, at::ScalarType weights) {
  if (storage == Storage::Counter) return at::kFloat;
  return storage == Storage::State ? state_type(options, weights) : compute_type(options, weights);
}

bool has_master(const Options& options, const Bucket& bucket) {
  return options.master_weights() && is_16_bit(bucket.type);
}

std::string who(const Options& options, const std::string& parameter) {
  return options.name() + ": '" + parameter + "'";
}

// On the host a stack stays below 32 MiB. Above that, glibc's malloc maps and zeroes fresh pages for every temporary.
bool is_full(const Bucket& bucket, const Tensor& part) {
  constexpr int64_t kLargestStack = int64_t{24} << 20;
  const int64_t elements = static_cast<int64_t>(bucket.entries.size() + 1) * part.numel();
  return part.is_cpu() && elements * static_cast<int64_t>(sizeof(float)) > kLargestStack;
}

State make_state(const Options& options, const Bucket& bucket, const std::vector<Tensor>& weights) {
  const auto stack = [&](const std::vector<int64_t>& shape, at::ScalarType type, double value) {
    std::vector<int64_t> sizes = {static_cast<int64_t>(bucket.entries.size())};
    sizes.insert(sizes.end(), shape.begin(), shape.end());
    return at::full(sizes, value, at::TensorOptions().dtype(type).device(bucket.device));
  };
  State state;
  for (const auto& field : options.fields(bucket.shape)) {
    state.add(field.name, stack(field.shape, field_type(field.storage, options, bucket.type), field.initial));
  }
  if (has_master(options, bucket)) state.add("master", stacked(weights, bucket.shape, at::kFloat).clone());
  return state;
}

}  // namespace

at::ScalarType compute_type(const Options& options, at::ScalarType weights) {
  return weights == at::kDouble || options.state_dtype() == StateType::Float64 ? at::kDouble : at::kFloat;
}

std::string field_name(const Bucket::Entry& entry, const std::string& field) {
  return entry.part < 0 ? field : "split." + std::to_string(entry.part) + "." + field;
}

Bucket single(const Bucket& bucket, size_t i) {
  Bucket one{{bucket.entries.at(i)}, bucket.shape, bucket.type, bucket.device, {}};
  for (const auto& [name, stack] : bucket.state) one.state.add(name, stack.narrow(0, static_cast<int64_t>(i), 1));
  return one;
}

std::vector<Bucket> make_buckets(const Options& options, const std::vector<Tensor>& parameters,
                                 const std::vector<std::string>& names) {
  const auto folding = options.folding();
  std::vector<Bucket> buckets;
  std::vector<std::vector<Tensor>> weights;
  for (size_t p = 0; p < parameters.size(); ++p) {
    const auto& parameter = parameters[p];
    const auto label = who(options, names[p]);
    TORCH_CHECK(at::isFloatingType(parameter.scalar_type()), label, " must hold real floating-point numbers, got ",
                parameter.scalar_type());
    const auto parts = parts_of(parameter, folding, label);
    for (size_t k = 0; k < parts.size(); ++k) {
      const auto shape = working_shape(parts[k], folding, label);
      auto bucket = std::find_if(buckets.begin(), buckets.end(), [&](const Bucket& b) {
        return b.shape == shape && b.type == parameter.scalar_type() && b.device == parameter.device() &&
               !is_full(b, parts[k]);
      });
      if (bucket == buckets.end()) {
        buckets.push_back({{}, shape, parameter.scalar_type(), parameter.device(), {}});
        weights.emplace_back();
        bucket = std::prev(buckets.end());
      }
      bucket->entries.push_back({p, parts.size() > 1 ? static_cast<int64_t>(k) : -1});
      weights[bucket - buckets.begin()].push_back(parts[k]);
    }
  }
  for (size_t b = 0; b < buckets.size(); ++b) buckets[b].state = make_state(options, buckets[b], weights[b]);
  return buckets;
}

void check_parts(const Bucket& bucket, const Options& options, const std::vector<Tensor>& parameters,
                 const std::vector<std::string>& names) {
  const auto folding = options.folding();
  for (const auto& entry : bucket.entries) {
    const Tensor& parameter = parameters.at(entry.parameter);
    if (entry.part < 0 && (!folding || folding->split.empty()) && parameter.sizes() == at::IntArrayRef(bucket.shape))
      continue;
    const auto label = who(options, names.at(entry.parameter));
    const auto parts = parts_of(parameter, folding, label);
    const auto part = std::max<int64_t>(entry.part, 0);
    TORCH_CHECK((entry.part >= 0) == (parts.size() > 1) && part < static_cast<int64_t>(parts.size()) &&
                    working_shape(parts[part], folding, label) == bucket.shape,
                label, " must keep parts of shape ", at::IntArrayRef(bucket.shape),
                ", for which its state was created; set split and fold when you create the optimizer");
  }
}

bool has_state(const Bucket& bucket, const Options& options) {
  size_t count = 0;
  for (const auto& field : options.fields(bucket.shape)) {
    const Tensor stack = bucket.state[field.name];
    if (!stack.defined() || stack.dim() == 0 || stack.sizes().slice(1) != at::IntArrayRef(field.shape)) return false;
    ++count;
  }
  const bool master = has_master(options, bucket);
  return master == bucket.state["master"].defined() && bucket.state.size() == count + (master ? 1 : 0);
}

std::vector<Tensor> parts_of(const Options& options, const Bucket& bucket, const std::vector<Tensor>& tensors) {
  const auto folding = options.folding();
  std::vector<Tensor> parts;
  parts.reserve(bucket.entries.size());
  for (const auto& entry : bucket.entries) {
    const Tensor& whole = tensors.at(entry.parameter);
    parts.push_back(entry.part < 0 ? whole : parts_of(whole, folding, options.name()).at(entry.part));
  }
  return parts;
}

Tensor stacked(const std::vector<Tensor>& parts, at::IntArrayRef shape, at::ScalarType type) {
  std::vector<Tensor> shaped;
  shaped.reserve(parts.size());
  for (const auto& part : parts) shaped.push_back(part.reshape(shape));
  return (shaped.size() == 1 ? shaped.front().unsqueeze(0) : at::stack(shaped)).to(type);
}

bool has_gradient(const Bucket& bucket, const std::vector<Tensor>& gradients) {
  return std::any_of(bucket.entries.begin(), bucket.entries.end(),
                     [&](const Bucket::Entry& entry) { return gradients.at(entry.parameter).defined(); });
}

Tensor stacked_gradients(const Options& options, const Bucket& bucket, const std::vector<Tensor>& gradients) {
  const Tensor G = stacked(parts_of(options, bucket, gradients), bucket.shape, compute_type(options, bucket.type));
  return options.maximize() ? -G : G;
}

}  // namespace prism
