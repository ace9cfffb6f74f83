#include "prism/optim/bucket.h"

#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <c10/util/accumulate.h>

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

// A part of a parameter that is optimized separately, as a view of what this process holds of it.
struct Part {
  Tensor tensor;
  LayoutPtr layout = {};  // null: this process shapes its matrices
  int64_t first = 0;      // its first row
};

// Returns true if processes hold parts of the same matrices; false if only the dimensions that count them are cut.
bool cuts_matrices(const Layout& layout, const Folding& folding) {
  const auto dimensions = static_cast<int64_t>(layout.shape.size());
  for (int64_t d = rows_dimension(dimensions, folding); d < dimensions; ++d) {
    if (layout.is_cut(d)) return true;
  }
  return false;
}

// The parts of a parameter: one, or one per entry of `split` along the rows.
std::vector<Part> parts_of(const Tensor& parameter, const LayoutPtr& layout, const std::optional<Folding>& folding,
                           const std::string& who) {
  if (!folding) return {{parameter}};
  check_matrix(layout ? at::IntArrayRef(layout->shape) : parameter.sizes(), *folding, who);
  const LayoutPtr shared = layout && (layout->is_replicated() || cuts_matrices(*layout, *folding)) ? layout : nullptr;
  if (folding->split.empty()) return {{parameter, shared}};
  const int64_t rows = rows_dimension(parameter.dim(), *folding);
  std::vector<Part> parts;
  int64_t begin = 0, first = 0;
  for (const int64_t length : folding->split) {
    const LayoutPtr own = shared ? std::make_shared<const Layout>(shared->part(rows, begin, length)) : nullptr;
    const int64_t here = own ? own->here().size[rows] : length;
    parts.push_back({parameter.narrow(rows, first, here), own, first});
    begin += length;
    first += here;
  }
  return parts;
}

bool is_same(const LayoutPtr& a, const LayoutPtr& b) { return a == b || (a && b && *a == *b); }

// On the host a stack stays below 32 MiB. Above that, glibc's malloc maps and zeroes fresh pages for every temporary.
constexpr int64_t kHostStack = (int64_t{24} << 20) / static_cast<int64_t>(sizeof(float));

// On a GPU a process shapes matrices of this many elements at a time, if others share its work: enough for the kernels,
// and little memory for messages.
constexpr int64_t kDeviceRound = int64_t{32} << 20;

// Buckets with a layout are cut into rounds later, by owner.
bool is_full(const Bucket& bucket, const Part& part) {
  const int64_t elements = static_cast<int64_t>(bucket.entries.size() + 1) * part.tensor.numel();
  return part.tensor.is_cpu() && !part.layout && elements > kHostStack;
}

Tensor initial_stack(const Options& options, const Bucket& bucket, const Field& field, int64_t count) {
  std::vector<int64_t> sizes = {count};
  sizes.insert(sizes.end(), field.shape.begin(), field.shape.end());
  const auto type = field_type(field.storage, options, bucket.type);
  return at::full(sizes, field.initial, at::TensorOptions().dtype(type).device(bucket.device));
}

State make_state(const Options& options, const Bucket& bucket, const std::vector<Tensor>& weights) {
  State state;
  for (const auto& field : fields_here(options, bucket)) {
    state.add(field.name, initial_stack(options, bucket, field, static_cast<int64_t>(bucket.entries.size())));
  }
  if (has_master(options, bucket)) state.add("master", stacked(weights, bucket.shape, at::kFloat).clone());
  return state;
}

}  // namespace

std::vector<int64_t> whole_shape(const Options& options, const Bucket& bucket) {
  return bucket.layout ? working_shape(bucket.layout->shape, options.folding()) : bucket.shape;
}

std::vector<Field> fields_here(const Options& options, const Bucket& bucket) {
  auto fields = options.fields(whole_shape(options, bucket));
  if (!bucket.layout) return fields;
  std::erase_if(fields, [](const Field& field) { return !field.in_operands; });
  for (auto& field : fields) {
    if (!field.shape.empty()) field.shape = bucket.shape;
  }
  return fields;
}

std::vector<Field> fields_of_owner(const Options& options, const Bucket& bucket) {
  if (!bucket.layout) return {};
  auto fields = options.fields(whole_shape(options, bucket));
  std::erase_if(fields, [](const Field& field) { return field.in_operands; });
  return fields;
}

std::vector<Bucket> rounds_of(const Options& options, const Bucket& bucket, const std::vector<Tensor>& parameters) {
  const int64_t size = std::max<int64_t>(c10::multiply_integers(bucket.layout->shape), 1);
  const int64_t each = std::max<int64_t>((bucket.device.is_cpu() ? kHostStack : kDeviceRound) / size, 1);
  std::vector<int64_t> seen(bucket.layout->exchange->size());  // entries of each owner
  std::vector<Bucket> rounds;
  for (const auto& entry : bucket.entries) {
    const auto round = static_cast<size_t>(seen.at(entry.owner)++ / each);
    if (round == rounds.size()) rounds.push_back({{}, bucket.shape, bucket.type, bucket.device, {}, bucket.layout});
    rounds[round].entries.push_back(entry);
  }
  for (auto& round : rounds) {
    round.state = make_state(options, round, parts_of(options, round, parameters));
    const auto count = std::count_if(round.entries.begin(), round.entries.end(),
                                     [&](const Bucket::Entry& entry) { return round.is_owned_here(entry); });
    for (const auto& field : fields_of_owner(options, round))
      round.owned.add(field.name, initial_stack(options, round, field, count));
  }
  return rounds;
}

LayoutPtr layout_of(const std::vector<LayoutPtr>& layouts, size_t parameter) {
  return layouts.empty() ? nullptr : layouts.at(parameter);
}

Tensor part_here(const Tensor& value, const LayoutPtr& layout, const Bucket& bucket, const Tensor& target) {
  if (!layout || value.sizes() == target.sizes()) return value;
  if (bucket.layout && target.sizes() == at::IntArrayRef(bucket.shape) &&
      value.numel() == c10::multiply_integers(bucket.layout->shape))
    return bucket.layout->here().of(value.reshape(bucket.layout->shape)).reshape(bucket.shape);
  return cut(value, *layout, target.sizes());
}

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
                                 const std::vector<std::string>& names, const std::vector<LayoutPtr>& layouts) {
  const auto folding = options.folding();
  std::vector<Bucket> buckets;
  std::vector<std::vector<Tensor>> weights;
  for (size_t p = 0; p < parameters.size(); ++p) {
    const auto& parameter = parameters[p];
    const auto label = who(options, names[p]);
    TORCH_CHECK(at::isFloatingType(parameter.scalar_type()), label, " must hold real floating-point numbers, got ",
                parameter.scalar_type());
    TORCH_CHECK_VALUE(!parameter.is_meta(), label,
                      " is on the meta device, which holds no values; create the optimizer after the model has its "
                      "weights");
    const auto parts = parts_of(parameter, layout_of(layouts, p), folding, label);
    for (size_t k = 0; k < parts.size(); ++k) {
      const auto& part = parts[k];
      const auto shape = working_shape(part.tensor.sizes(), folding);
      auto bucket = std::find_if(buckets.begin(), buckets.end(), [&](const Bucket& b) {
        return b.shape == shape && b.type == parameter.scalar_type() && b.device == parameter.device() &&
               is_same(b.layout, part.layout) && !is_full(b, part);
      });
      if (bucket == buckets.end()) {
        buckets.push_back({{}, shape, parameter.scalar_type(), parameter.device(), {}, part.layout});
        weights.emplace_back();
        bucket = std::prev(buckets.end());
      }
      bucket->entries.push_back({p, parts.size() > 1 ? static_cast<int64_t>(k) : -1, part.first});
      weights[bucket - buckets.begin()].push_back(part.tensor);
    }
  }
  for (size_t b = 0; b < buckets.size(); ++b) {
    if (!buckets[b].layout) buckets[b].state = make_state(options, buckets[b], weights[b]);
  }
  return buckets;
}

void check_parts(const Bucket& bucket, const Options& options, const std::vector<Tensor>& parameters,
                 const std::vector<std::string>& names, const std::vector<LayoutPtr>& layouts) {
  const auto folding = options.folding();
  for (const auto& entry : bucket.entries) {
    const Tensor& parameter = parameters.at(entry.parameter);
    if (entry.part < 0 && (!folding || folding->split.empty()) && parameter.sizes() == at::IntArrayRef(bucket.shape))
      continue;
    const auto label = who(options, names.at(entry.parameter));
    const auto parts = parts_of(parameter, layout_of(layouts, entry.parameter), folding, label);
    const auto part = std::max<int64_t>(entry.part, 0);
    TORCH_CHECK((entry.part >= 0) == (parts.size() > 1) && part < static_cast<int64_t>(parts.size()) &&
                    working_shape(parts[part].tensor.sizes(), folding) == bucket.shape &&
                    is_same(parts[part].layout, bucket.layout),
                label, " must keep parts of shape ", at::IntArrayRef(bucket.shape),
                ", for which its state was created; set split and fold when you create the optimizer");
  }
}

bool has_state(const Bucket& bucket, const Options& options) {
  const auto holds = [](const State& state, const std::vector<Field>& fields) {
    return std::all_of(fields.begin(), fields.end(), [&](const Field& field) {
      const Tensor stack = state[field.name];
      return stack.defined() && stack.dim() > 0 && stack.sizes().slice(1) == at::IntArrayRef(field.shape);
    });
  };
  const auto here = fields_here(options, bucket), owned = fields_of_owner(options, bucket);
  const bool master = has_master(options, bucket);
  return holds(bucket.state, here) && holds(bucket.owned, owned) && master == bucket.state["master"].defined() &&
         bucket.state.size() == here.size() + (master ? 1 : 0) && bucket.owned.size() == owned.size();
}

Tensor part_of(const Options& options, const Bucket& bucket, const Bucket::Entry& entry,
               const std::vector<Tensor>& tensors) {
  const Tensor& whole = tensors.at(entry.parameter);
  if (entry.part < 0) return whole;
  const auto folding = options.folding();
  const int64_t rows = rows_dimension(whole.dim(), *folding);
  const int64_t length = bucket.layout ? bucket.layout->here().size[rows] : folding->split.at(entry.part);
  return whole.narrow(rows, entry.first, length);
}

std::vector<Tensor> parts_of(const Options& options, const Bucket& bucket, const std::vector<Tensor>& tensors) {
  std::vector<Tensor> parts;
  parts.reserve(bucket.entries.size());
  for (const auto& entry : bucket.entries) parts.push_back(part_of(options, bucket, entry, tensors));
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

std::optional<std::vector<DenseEntry>> dense_entries(const Options& options, const Bucket& bucket,
                                                     const std::vector<Tensor>& parameters,
                                                     const std::vector<Tensor>& gradients, at::ScalarType state_type) {
  for (const auto& [name, stack] : bucket.state) {
    if (!stack.is_contiguous() || (name != "step" && stack.scalar_type() != state_type)) return std::nullopt;
  }
  std::vector<DenseEntry> entries;
  for (size_t i = 0; i < bucket.entries.size(); ++i) {
    const auto& entry = bucket.entries[i];
    if (!gradients.at(entry.parameter).defined()) continue;
    const Tensor W = part_of(options, bucket, entry, parameters), G = part_of(options, bucket, entry, gradients);
    if (!W.is_contiguous()) return std::nullopt;
    entries.push_back({static_cast<int64_t>(i), G.contiguous(), W});
    if (G.scalar_type() != entries.front().G.scalar_type()) return std::nullopt;
  }
  return entries;
}

}  // namespace prism
