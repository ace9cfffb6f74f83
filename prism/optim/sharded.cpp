// The engine's part of a run whose parameters are cut over several processes, or whose work is shared by them: owners,
// the agreement on gradients and on skipped steps, and state that only the owner keeps.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <map>

#include "prism/io/hash.h"
#include "prism/optim/cuda_step.h"
#include "prism/optim/engine.h"
#include "prism/optim/matrix.h"
#include "prism/optim/ownership.h"

namespace prism {
namespace {

// The bytes for each element of a matrix on its way to the owner, and for each element of the update on its way back.
struct Bytes {
  int64_t to, back;
};

Bytes bytes_per_element(const Options& options, const Bucket& bucket) {
  const auto type = compute_type(options, bucket.type);
  const auto size = [](at::ScalarType scalar) { return static_cast<int64_t>(c10::elementSize(scalar)); };
  const auto operand = kernel_operands(options, bucket).value_or(type);
  return {bucket.layout->is_replicated() ? 0 : options.operand_count() * size(operand),
          size(bucket.layout->exchange->update_type(type))};
}

double cost_of(const Options& options, const Bucket& bucket) {
  const auto [to, back] = bytes_per_element(options, bucket);
  const auto shape = whole_shape(options, bucket);
  return shaping_cost(shape, to + back, options.gram_sides(shape));
}

std::string label_of(const std::string& name, const Bucket::Entry& entry) {
  return entry.part < 0 ? name : name + ".split." + std::to_string(entry.part);
}

// The device on which the processes of an exchange talk: that of the parameters.
at::Device device_of(const std::vector<Engine::Group>& groups, const Exchange* exchange) {
  for (const auto& group : groups) {
    for (size_t p = 0; p < group.layouts.size(); ++p) {
      if (group.layouts[p] && group.layouts[p]->exchange.get() == exchange) return group.parameters[p].device();
    }
  }
  return at::kCPU;
}

// The bytes that each rank sends at a step for one entry: its part of the operands to the owner, and the owner the parts
// of the update to the others.
std::vector<int64_t> bytes_of(const Options& options, const Bucket& bucket, int64_t owner) {
  const auto [to, back] = bytes_per_element(options, bucket);
  const auto& boxes = bucket.layout->boxes;
  std::vector<int64_t> bytes(boxes.size());
  for (size_t r = 0; r < boxes.size(); ++r) {
    if (static_cast<int64_t>(r) == owner) continue;
    bytes[r] = to * boxes[r].numel();
    bytes[owner] += back * boxes[r].numel();
  }
  return bytes;
}

}  // namespace

std::vector<std::shared_ptr<Exchange>> Engine::exchanges() const {
  std::vector<std::shared_ptr<Exchange>> list;
  for (const auto& group : groups_) {
    for (const auto& layout : group.layouts) {
      if (layout && std::find(list.begin(), list.end(), layout->exchange) == list.end())
        list.push_back(layout->exchange);
    }
  }
  return list;
}

void Engine::choose_owners(std::vector<std::vector<Bucket>>& buckets, const std::vector<const Options*>& options,
                           bool keep) const {
  std::map<const Exchange*, std::vector<double>> loads;
  const auto load_of = [&](const Bucket& bucket) -> std::vector<double>& {
    auto& load = loads[bucket.layout->exchange.get()];
    load.resize(bucket.layout->exchange->size());
    return load;
  };
  std::map<std::pair<const void*, int64_t>, int64_t> present;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (const auto& bucket : groups_[g].buckets) {
      if (!bucket.layout) continue;
      for (const auto& entry : bucket.entries) {
        present[{groups_[g].known[entry.parameter].unsafeGetTensorImpl(), entry.part}] = entry.owner;
        if (buckets[g].empty()) load_of(bucket)[entry.owner] += cost_of(*options[g], bucket);
      }
    }
  }
  struct Open {
    std::vector<Job> jobs;
    std::vector<Bucket::Entry*> entries;
  };
  std::map<const Exchange*, Open> open;
  for (size_t g = 0; g < buckets.size(); ++g) {
    for (auto& bucket : buckets[g]) {
      if (!bucket.layout) continue;
      for (auto& entry : bucket.entries) {
        const auto found = present.find({groups_[g].parameters[entry.parameter].unsafeGetTensorImpl(), entry.part});
        if (keep && found != present.end() && found->second < bucket.layout->exchange->size()) {
          entry.owner = found->second;
          load_of(bucket)[entry.owner] += cost_of(*options[g], bucket);
        } else {
          load_of(bucket);
          auto& [jobs, entries] = open[bucket.layout->exchange.get()];
          jobs.push_back({label_of(groups_[g].names[entry.parameter], entry), cost_of(*options[g], bucket)});
          entries.push_back(&entry);
        }
      }
    }
  }
  for (auto& [exchange, list] : open) {
    const auto owners = assign(list.jobs, loads[exchange]);
    for (size_t i = 0; i < owners.size(); ++i) list.entries[i]->owner = owners[i];
  }
  for (size_t g = 0; g < buckets.size(); ++g) {
    std::vector<Bucket> list;
    for (auto& bucket : buckets[g]) {
      if (!bucket.layout) {
        list.push_back(std::move(bucket));
        continue;
      }
      TORCH_CHECK_VALUE(!options[g]->capturable(), options[g]->name(), ": '",
                        groups_[g].names[bucket.entries.front().parameter],
                        "' is shaped by one process for all, and their exchange cannot be captured; leave capturable "
                        "out");
      for (auto& round : rounds_of(*options[g], bucket, groups_[g].parameters)) list.push_back(std::move(round));
    }
    buckets[g] = std::move(list);
  }
}

// The shape of a whole entry as it is worked on, also if it is cut only between its matrices.
std::vector<int64_t> Engine::whole_shape_of(const Group& group, const Bucket::Entry& entry) {
  const auto folding = group.options->folding();
  const LayoutPtr layout = layout_of(group.layouts, entry.parameter);
  auto shape = layout ? layout->shape : group.parameters.at(entry.parameter).sizes().vec();
  if (entry.part >= 0) shape[rows_dimension(static_cast<int64_t>(shape.size()), *folding)] = folding->split[entry.part];
  return working_shape(shape, folding);
}

std::vector<Engine::PlanLine> Engine::plan() const {
  std::vector<PlanLine> lines;
  for (const auto& group : groups_) {
    const Options& options = *group.options;
    if (!options.takes_matrices()) continue;
    for (const auto& bucket : group.buckets) {
      for (const auto& entry : bucket.entries) {
        const auto shape = whole_shape_of(group, entry);
        const auto sides = options.gram_sides(shape);
        lines.push_back({label_of(group.names[entry.parameter], entry), shape, sides, bucket.layout.get(), entry.owner,
                         bucket.layout ? cost_of(options, bucket) : shaping_cost(shape, 0, sides),
                         bucket.layout ? bytes_of(options, bucket, entry.owner) : std::vector<int64_t>()});
      }
    }
  }
  return lines;
}

void Engine::check_plan() {
  if (plan_is_checked_) return;
  const auto lines = plan();
  for (const auto& exchange : exchanges()) {
    Json text = Json::array();
    for (const auto& line : lines) {
      if (line.layout != nullptr && line.layout->exchange == exchange)
        text.push_back({line.name, line.shape, line.owner, line.bytes});
    }
    for (const auto& group : groups_) {
      Json options = group.options->to_json();
      options.erase("lr");
      text.push_back({group.options->name(), options});
      for (size_t p = 0; p < group.layouts.size(); ++p) {
        if (!group.layouts[p] || group.layouts[p]->exchange != exchange) continue;
        text.push_back({group.names[p], group.layouts[p]->shape});
        for (const auto& box : group.layouts[p]->boxes) text.push_back({box.begin, box.size});
      }
    }
    constexpr size_t kDigits = 15;  // that fit into an int64_t with its sign
    const int64_t hash = std::stoll(io::hash_bytes(text.dump()).substr(0, kDigits), nullptr, 16);
    Tensor values = at::tensor({hash, -hash}, at::kLong).to(device_of(groups_, exchange.get()));
    exchange->maximum(values);
    const Tensor found = values.cpu();
    TORCH_CHECK_VALUE(found[0].item<int64_t>() == hash && found[1].item<int64_t>() == -hash, "the ", exchange->size(),
                      " processes that share parameters gave their optimizers different ones: "
                      "names, shapes, order and options must be equal on all; compare print(optimizer.plan())");
  }
  plan_is_checked_ = true;
}

int64_t Engine::bytes_sent() const {
  int64_t bytes = 0;
  for (const auto& exchange : exchanges()) bytes += exchange->bytes_sent();
  return bytes;
}

// A parameter has a gradient if any process has one for its part; the others take zeros. Throws if processes that hold
// the whole parameter do not agree.
void Engine::agree_on_presence(Gradients& gradients) const {
  for (const auto& exchange : exchanges()) {
    std::vector<std::pair<size_t, size_t>> places;
    std::vector<int> present;
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (size_t p = 0; p < groups_[g].layouts.size(); ++p) {
        if (!groups_[g].layouts[p] || groups_[g].layouts[p]->exchange != exchange) continue;
        places.emplace_back(g, p);
        present.push_back(gradients[g][p].defined() ? 1 : 0);
        present.push_back(gradients[g][p].defined() ? 0 : 1);
      }
    }
    Tensor anywhere = at::tensor(present, at::kInt).to(device_of(groups_, exchange.get()));
    exchange->maximum(anywhere);
    const Tensor found = anywhere.cpu();
    for (size_t i = 0; i < places.size(); ++i) {
      const auto [g, p] = places[i];
      const auto place = static_cast<int64_t>(2 * i);
      const bool somewhere = found[place].item<int>() != 0, missing = found[place + 1].item<int>() != 0;
      TORCH_CHECK(!(somewhere && missing && groups_[g].layouts[p]->is_replicated()), groups_[g].options->name(), ": '",
                  groups_[g].names[p], "' has a gradient on some of the ", exchange->size(),
                  " processes only; average the gradients over all of them before the step, as "
                  "DistributedDataParallel does");
      if (somewhere && !gradients[g][p].defined()) gradients[g][p] = at::zeros_like(groups_[g].parameters[p]);
    }
  }
}

// Returns true if `ok` is true on all processes.
Tensor Engine::everywhere(const Tensor& ok) const {
  if (!everyone_) return ok;
  Tensor failed = ok.logical_not().to(at::kInt).reshape({1});
  everyone_->maximum(failed);
  return failed.eq(0).reshape(ok.sizes());
}

std::vector<Engine::CutField> Engine::cut_fields(size_t group, size_t parameter) const {
  const auto& [options, parameters, names, layouts, buckets, known, lr, gamma] = groups_.at(group);
  const LayoutPtr layout = layout_of(layouts, parameter);
  if (!layout) return {};
  std::vector<CutField> list;
  for (const auto& bucket : buckets) {
    for (const auto& entry : bucket.entries) {
      if (entry.parameter != parameter) continue;
      const auto& shape = layout->shape;
      const auto worked = whole_shape_of(groups_[group], entry);
      bool flat_cut = false;  // flattening mixes cut dimensions
      for (size_t d = 1; d < shape.size(); ++d) flat_cut |= worked.size() < shape.size() && layout->is_cut(d);
      auto fields = options->fields(worked);
      if (bucket.state["master"].defined()) fields.push_back({.name = "master", .shape = worked, .in_operands = true});
      for (const auto& field : fields) {
        if (field.shape.empty() && (field.in_operands || !bucket.layout)) continue;  // a number that every process has
        const bool mixed = !layout->is_replicated() && (entry.part >= 0 || flat_cut);
        const bool apart = bucket.layout && (!field.in_operands || mixed);
        list.push_back({field_name(entry, field.name), field.shape, apart});
      }
    }
  }
  return list;
}

Tensor Engine::part_of_state(size_t group, size_t parameter, const std::string& name, const Tensor& value) const {
  const Group& here = groups_.at(group);
  Tensor part = value;
  for (const auto& bucket : here.buckets) {
    each_field(bucket, [&](const Bucket::Entry& entry, const std::string& field, const Tensor& target) {
      if (entry.parameter == parameter && field_name(entry, field) == name)
        part = part_here(value, layout_of(here.layouts, parameter), bucket, target);
    });
  }
  return part;
}

Tensor Engine::whole_state(size_t group, size_t parameter, const std::string& name) const {
  at::NoGradGuard no_grad;
  const auto& here = groups_.at(group);
  for (const auto& bucket : here.buckets) {
    if (!bucket.layout) continue;
    for (const auto& entry : bucket.entries) {
      if (entry.parameter != parameter) continue;
      const auto views = state_of(group, parameter);
      const auto view = std::find_if(views.begin(), views.end(), [&](const auto& one) { return one.first == name; });
      for (const auto& [field, stack] : bucket.owned) {
        if (field_name(entry, field) != name) continue;
        const auto shape = stack.sizes().slice(1).vec();
        Layout layout{shape, {}, bucket.layout->exchange};
        for (int64_t r = 0; r < layout.exchange->size(); ++r) {
          layout.boxes.push_back({std::vector<int64_t>(shape.size(), 0),
                                  r == entry.owner ? shape : std::vector<int64_t>(shape.size(), 0)});
        }
        return assembled(view != views.end() ? view->second : at::empty({0}, stack.options()), layout);
      }
      for (const auto& [field, stack] : bucket.state) {
        if (field_name(entry, field) == name)
          return assembled(view->second, *bucket.layout).reshape(whole_shape(*here.options, bucket));
      }
    }
  }
  TORCH_CHECK(false, "'", here.names.at(parameter), "' has no state '", name, "' that is kept apart");
}

}  // namespace prism
