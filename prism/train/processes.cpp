#include "prism/train/processes.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

#include "prism/io/error.h"
#include "prism/io/json.h"
#include "prism/io/json_fields.h"
#include "prism/io/spelling.h"
#include "prism/optim/ownership.h"
#include "prism/train/config.h"
#include "prism/train/machine.h"
#include "prism/train/run_fields.h"

namespace prism::train {
namespace {

using nlohmann::json;

// The order in which one process keeps the parameters: by group, then by shape, then as they are in the model.
class Order {
 public:
  explicit Order(const Routing& routing) {
    const auto& rules = routing.rules();
    const auto& lines = routing.lines();
    std::map<std::pair<const Options*, std::vector<int64_t>>, size_t> first;  // parameter of a shape
    for (size_t p = 0; p < lines.size(); ++p) {
      const auto* options = rules[lines[p].rule].options.get();
      const bool matrices = options == rules.back().options.get();
      const size_t shape = first.emplace(std::pair(options, lines[p].shape), p).first->second;
      places_[lines[p].name] = {matrices ? size_t{0} : size_t{1}, shape, p};
    }
  }

  // Of a name such as "model.norm.weight", with further parts after it.
  const std::array<size_t, 3>& of(std::string name) const {
    for (;;) {
      if (const auto found = places_.find(name); found != places_.end()) return found->second;
      const auto dot = name.rfind('.');
      TORCH_INTERNAL_ASSERT(dot != std::string::npos);
      name.resize(dot);
    }
  }

 private:
  std::map<std::string, std::array<size_t, 3>> places_;
};

constexpr const char* kState = "state.";

std::string without_state(const std::string& key) { return key.substr(std::string(kState).size()); }

// The tensor as whole numbers of its size, which every transport can send.
Tensor raw(const Tensor& tensor) {
  const Tensor flat = tensor.contiguous().flatten();
  return flat.view(flat.itemsize() == 8 ? at::kLong : flat.itemsize() == 4 ? at::kInt : at::kByte);
}

// The parameters of which each process steps a part, by name.
std::map<std::string, const Routing::Line*> cut_parameters(const Mixed& optimizer,
                                                           const std::vector<dist::Part>& parts) {
  std::map<std::string, const Routing::Line*> cut;
  for (const auto& part : parts) {
    const auto& line = optimizer.routing().lines()[part.parameter];
    if (part.size < c10::multiply_integers(line.shape)) cut[line.name] = &line;
  }
  return cut;
}

// The one of these parameters whose state has this key, "state.<parameter>.<field>"; null if it is of another.
const Routing::Line* of_state(const std::map<std::string, const Routing::Line*>& parameters, const std::string& key) {
  if (!key.starts_with(kState)) return nullptr;
  const auto name = without_state(key);
  const auto found = parameters.find(name.substr(0, name.rfind('.')));
  return found == parameters.end() ? nullptr : found->second;
}

}  // namespace

dist::MicroBatches micro_batches(const io::Config& config, const dist::Communicator& processes) {
  const auto batch = config.integer("train.batch"), accumulate = config.integer("train.accumulate");
  const int64_t here = (accumulate + processes.size() - 1) / processes.size(), all = here * processes.size();
  if (all != accumulate && config.boolean("train.exact_reduction")) {
    throw Error(
        fmt::format("{}: expected a multiple of the {} processes, got {}; with train.exact_reduction a step is cut "
                    "into the same passes on any number of processes",
                    config.where("train.accumulate"), processes.size(), accumulate));
  }
  if (batch % all != 0) {
    throw Error(fmt::format("{}: expected a multiple of {}, for {} with {} each, got {}", config.where("train.batch"),
                            all, processes.size() == 1 ? "1 process" : fmt::format("{} processes", processes.size()),
                            io::counted(here, "equal part"), batch));
  }
  return {all, processes.rank() * here, here};
}

void choose_device(const dist::Communicator& processes, io::Config& config) {
  const auto name = config.string("run.device");
  if (!processes.is_distributed() || dist::local_rank() < 0 || (name != kAuto && name != "cuda")) return;
  if (device_of(name).is_cuda())
    config.assign("run.device", fmt::format("cuda:{}", dist::local_rank()), config.where("run.device"));
}

void expect_equal_configs(dist::Communicator& processes, const io::Config& config) {
  json values;
  for (const auto& key : config.table().keys()) {
    const auto& name = key.name();
    if (name != "run.device" && name != "run.threads" && config.has(name)) values[name] = config.value(name);
  }
  const auto texts = processes.gather(values.dump());
  const auto first = json::parse(texts.front());
  for (size_t r = 1; r < texts.size(); ++r) {
    const auto other = json::parse(texts[r]);
    for (const auto& key : config.table().keys()) {
      const auto a = first.value(key.name(), json()), b = other.value(key.name(), json());
      if (a == b) continue;
      throw dist::AgreedError(processes.rank() != 0
                                  ? ""
                                  : fmt::format("the processes must have the same configuration: {} is {} on process 0 "
                                                "and {} on process {}",
                                                key.name(), a.dump(), b.dump(), r));
    }
  }
}

double ownership_cost(const Options& rule, at::IntArrayRef shape) {
  constexpr int64_t kBytes = 4;  // of an element
  return rule.takes_matrices() ? shaping_cost(shape, kBytes, rule.gram_sides(shape))
                               : kPerByte * kBytes * static_cast<double>(c10::multiply_integers(shape));
}

std::vector<bool> are_elementwise(const Routing& routing) {
  std::vector<bool> result;
  for (const auto& line : routing.lines()) {
    const auto& options = routing.rules()[line.rule].options;
    result.push_back(!options->takes_matrices() && options != routing.rules().back().options);
  }
  return result;
}

Routing routing_of(const io::Config& config, const std::vector<std::pair<std::string, Tensor>>& parameters) {
  const auto pair = optimizer_options(config);
  return {default_rules(*pair.matrices, *pair.rest), parameters};
}

std::vector<dist::Part> parts(const io::Config& config, const std::vector<std::pair<std::string, Tensor>>& parameters,
                              const dist::Communicator& processes) {
  if (!processes.is_distributed() || !config.boolean("run.owned")) return {};
  const Routing routing = routing_of(config, parameters);
  const auto elementwise = are_elementwise(routing);
  std::vector<dist::Part> parts;
  std::vector<Job> jobs;
  std::vector<size_t> places;  // of the jobs among the parts
  for (size_t p = 0; p < parameters.size(); ++p) {
    const auto& line = routing.lines()[p];
    const int64_t elements = parameters[p].second.numel();
    if (elementwise[p] && elements > dist::unit_of(elements)) {
      for (const auto& part : dist::cut(p, elements, processes.size())) parts.push_back(part);
      continue;
    }
    jobs.push_back({line.name, ownership_cost(*routing.rules()[line.rule].options, line.shape)});
    places.push_back(parts.size());
    parts.push_back({p, 0, elements});
  }
  std::vector<double> loads(static_cast<size_t>(processes.size()), 0);
  const auto owners = assign(jobs, loads);
  for (size_t j = 0; j < jobs.size(); ++j) parts[places[j]].owner = owners[j];
  return parts;
}

std::vector<size_t> order_of_stepping(const Routing& routing) {
  const Order order(routing);
  std::vector<size_t> parameters(routing.lines().size());
  std::iota(parameters.begin(), parameters.end(), size_t{0});
  std::stable_sort(parameters.begin(), parameters.end(), [&](size_t a, size_t b) {
    auto left = order.of(routing.lines()[a].name), right = order.of(routing.lines()[b].name);
    std::swap(left[0], right[0]);  // the matrices last
    return left < right;
  });
  return parameters;
}

Snapshot gathered_state(dist::Communicator& processes, const Mixed& optimizer, const std::vector<dist::Part>& parts) {
  Snapshot own = optimizer.snapshot();
  json list = json::array();
  for (const auto& [key, tensor] : own.tensors) {
    if (key.starts_with(kState)) list.push_back({key, tensor.sizes().vec(), static_cast<int>(tensor.scalar_type())});
  }
  const auto lists = processes.gather(list.dump());
  const std::map<std::string, Tensor> here(own.tensors.begin(), own.tensors.end());
  std::map<std::string, std::vector<Tensor>> found;  // in the order of the ranks, which is that of the elements
  const auto ranks = static_cast<size_t>(processes.size());
  for (size_t r = 0; r < ranks; ++r) {
    for (const auto& line : json::parse(lists[r])) {
      const auto key = line[0].get<std::string>();
      const auto options =
          at::TensorOptions().dtype(static_cast<at::ScalarType>(line[2].get<int>())).device(processes.device());
      const bool is_own = static_cast<int64_t>(r) == processes.rank();
      const Tensor tensor = is_own ? here.at(key) : at::empty(line[1].get<std::vector<int64_t>>(), options);
      const Tensor message = raw(tensor);
      std::vector<int64_t> sent(ranks, 0), received(ranks, 0);
      if (is_own) sent[0] = message.numel();
      if (processes.rank() == 0) received[r] = message.numel();
      const Tensor arrived =
          processes.all_to_all(is_own ? message : message.narrow(0, 0, 0), std::move(sent), std::move(received)).wait();
      if (processes.rank() == 0) found[key].push_back(arrived.view(tensor.scalar_type()).reshape(tensor.sizes()));
    }
  }
  if (processes.rank() != 0) return own;
  Snapshot whole{own.header, {}};
  const auto cut = cut_parameters(optimizer, parts);
  for (auto& [key, pieces] : found) {
    const auto* line = of_state(cut, key);
    const bool is_cut = line != nullptr && pieces.front().dim() > 0;  // counters are equal in all parts
    whole.tensors.emplace_back(key, is_cut ? at::cat(pieces).reshape(line->shape) : pieces.front());
  }
  const Order order(optimizer.routing());
  std::stable_sort(whole.tensors.begin(), whole.tensors.end(), [&](const auto& a, const auto& b) {
    return order.of(without_state(a.first)) < order.of(without_state(b.first));
  });
  for (const auto& [key, tensor] : own.tensors) {
    if (!key.starts_with(kState)) whole.tensors.emplace_back(key, tensor);
  }
  for (auto& group : whole.header["groups"]) group["parameters"] = json::array();
  const auto& rules = optimizer.routing().rules();
  for (const auto& line : optimizer.routing().lines()) {
    const bool matrices = rules[line.rule].options == rules.back().options;
    auto& groups = whole.header["groups"];
    groups[matrices ? 0 : groups.size() - 1]["parameters"].push_back(line.name);
  }
  return whole;
}

Snapshot part_of_state(const dist::Communicator& processes, Snapshot whole, const Mixed& optimizer,
                       const std::vector<dist::Part>& parts) {
  std::set<std::string> here;
  for (const auto& group : optimizer.names()) here.insert(group.begin(), group.end());
  std::set<std::string> others;
  for (auto& group : whole.header.at("groups")) {
    json kept = json::array();
    for (const auto& name : group.at("parameters")) {
      if (here.contains(name.get<std::string>()))
        kept.push_back(name);
      else
        others.insert(name.get<std::string>());
    }
    group["parameters"] = kept;
  }
  const auto is_of_other = [&](const std::pair<std::string, Tensor>& entry) {
    auto name = entry.first.starts_with(kState) ? without_state(entry.first) : "";
    while (!name.empty() && !others.contains(name)) name.resize(std::max<size_t>(name.rfind('.') + 1, 1) - 1);
    return !name.empty();
  };
  std::erase_if(whole.tensors, is_of_other);
  const auto cut = cut_parameters(optimizer, parts);
  for (auto& [key, tensor] : whole.tensors) {
    const auto* line = of_state(cut, key);
    if (line == nullptr || tensor.dim() == 0) continue;
    for (const auto& part : parts) {
      if (&optimizer.routing().lines()[part.parameter] == line && part.owner == processes.rank())
        tensor = part.of(tensor.contiguous());
    }
  }
  return whole;
}

std::vector<SpectraLine> gathered_lines(dist::Communicator& processes, const Mixed& optimizer,
                                        const std::vector<SpectraLine>& lines) {
  json own = json::array();
  for (const auto& line : lines) own.push_back(io::to_json(line));
  std::vector<SpectraLine> all;
  for (const auto& text : processes.gather(own.dump())) {
    for (const auto& line : json::parse(text)) all.push_back(io::from_json<SpectraLine>(line, "spectra"));
  }
  const Order order(optimizer.routing());
  std::stable_sort(all.begin(), all.end(),
                   [&](const auto& a, const auto& b) { return order.of(a.matrix) < order.of(b.matrix); });
  return all;
}

}  // namespace prism::train
