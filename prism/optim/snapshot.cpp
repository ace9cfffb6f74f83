// Saving and loading of optimizers: a header of options and names, and one tensor per parameter and field.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>
#include <torch/serialize/archive.h>

#include <cstring>
#include <map>
#include <set>

#include "prism/io/error.h"
#include "prism/io/safetensors.h"
#include "prism/optim/optimizer.h"
#include "prism/optim/registry.h"

namespace prism {
namespace {

constexpr int64_t kFormat = 1;

struct TypeName {
  at::ScalarType type;
  const char* name;
};
constexpr TypeName kTypeNames[] = {
    {at::kFloat, "F32"}, {at::kDouble, "F64"}, {at::kBFloat16, "BF16"}, {at::kHalf, "F16"}, {at::kLong, "I64"}};

std::string state_key(const std::vector<std::string>& names, const Bucket::Entry& entry, const std::string& field) {
  return "state." + entry_name(names, entry) + "." + field;
}

std::string some(const std::set<std::string>& names) {
  constexpr size_t kShown = 5;
  std::vector<std::string> shown;
  for (const auto& name : names) {
    if (shown.size() < kShown) shown.push_back("'" + name + "'");
  }
  const std::string text = c10::Join(", ", shown);
  return names.size() <= kShown ? text : text + " and " + std::to_string(names.size() - kShown) + " more";
}

// Which group of the file each parameter was in.
std::map<std::string, size_t> groups_by_parameter(const Json& header) {
  std::map<std::string, size_t> groups;
  for (size_t g = 0; g < header.at("groups").size(); ++g) {
    for (const auto& name : header["groups"][g].at("parameters")) groups[name.get<std::string>()] = g;
  }
  return groups;
}

void check_same_names(const std::map<std::string, size_t>& saved, const std::vector<std::vector<std::string>>& ours) {
  std::set<std::string> missing;
  std::set<std::string> extra;
  for (const auto& [name, group] : saved) extra.insert(name);
  for (const auto& group : ours) {
    for (const auto& name : group) {
      if (extra.erase(name) == 0) missing.insert(name);
    }
  }
  TORCH_CHECK(missing.empty(), "load: the saved state has no parameter ", some(missing),
              extra.empty() ? "" : "; it has " + some(extra) + " instead");
  TORCH_CHECK(extra.empty(), "load: the saved state has ", some(extra), ", which this optimizer does not have");
}

}  // namespace

Snapshot Optimizer::snapshot() const {
  at::NoGradGuard no_grad;
  sync();
  Snapshot result;
  result.header = {{"format", kFormat}, {"groups", Json::array()}};
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Options& options = group_options(g);
    result.header["groups"].push_back(
        {{"optimizer", options.name()}, {"options", options.to_json()}, {"parameters", groups_[g].names}});
    for (const auto& bucket : groups_[g].buckets) {
      for (size_t i = 0; i < bucket.entries.size(); ++i) {
        for (const auto& [field, stack] : bucket.state) {
          const Tensor value = stack[static_cast<int64_t>(i)].clone();
          result.tensors.emplace_back(state_key(groups_[g].names, bucket.entries[i], field), value);
        }
      }
    }
  }
  if (skipped_.defined()) result.tensors.emplace_back("skipped", skipped_.clone());
  return result;
}

void Optimizer::restore(const Snapshot& snapshot) {
  at::NoGradGuard no_grad;
  sync();
  const Json& header = snapshot.header;
  TORCH_CHECK(header.is_object() && header.value("format", int64_t{0}) == kFormat, "load: expected state of format ",
              kFormat, ", got ", header.is_object() && header.contains("format") ? header["format"].dump() : "none");
  const auto saved_group = groups_by_parameter(header);
  check_same_names(saved_group, names());

  // Everything is made beside the present state first, so that a mismatch changes nothing.
  std::vector<std::unique_ptr<Options>> options;
  std::vector<std::vector<Bucket>> buckets;
  std::map<std::string, Tensor> tensors(snapshot.tensors.begin(), snapshot.tensors.end());
  std::vector<std::pair<Tensor, Tensor>> copies;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto& labels = groups_[g].names;
    if (labels.empty()) {
      options.push_back(group_options(g).copy());
      buckets.emplace_back();
      continue;
    }
    const size_t saved = saved_group.at(labels.front());
    for (const auto& label : labels) {
      TORCH_CHECK(saved_group.at(label) == saved, "load: '", labels.front(), "' and '", label,
                  "' share a group here, but were saved in two");
    }
    const Json& source = header["groups"][saved];
    const auto kind = source.at("optimizer").get<std::string>();
    TORCH_CHECK(kind == group_options(g).name(), "load: '", labels.front(), "' was saved by ", kind,
                ", but is optimized by ", group_options(g).name(), " here");
    options.push_back(make_options(kind, source.at("options")));
    buckets.push_back(make_buckets(*options.back(), param_groups_[g].params(), labels));
    for (auto& bucket : buckets.back()) {
      for (size_t i = 0; i < bucket.entries.size(); ++i) {
        for (const auto& [field, stack] : bucket.state) {
          const auto key = state_key(labels, bucket.entries[i], field);
          const auto found = tensors.find(key);
          TORCH_CHECK(found != tensors.end(), "load: the saved state has no '", key, "'");
          const Tensor target = stack[static_cast<int64_t>(i)];
          TORCH_CHECK(found->second.sizes() == target.sizes() && found->second.scalar_type() == target.scalar_type(),
                      "load: '", key, "' must be ", target.scalar_type(), " of shape ", target.sizes(), ", got ",
                      found->second.scalar_type(), " of shape ", found->second.sizes());
          copies.emplace_back(target, found->second);
        }
      }
    }
  }
  const auto skipped = tensors.find("skipped");
  TORCH_CHECK(skipped != tensors.end() || !skipped_.defined(), "load: the saved state has no 'skipped'");

  for (auto& [target, source] : copies) target.copy_(source);
  if (skipped_.defined()) skipped_.copy_(skipped->second);
  for (size_t g = 0; g < groups_.size(); ++g) {
    groups_[g].buckets = std::move(buckets[g]);
    param_groups_[g].set_options(std::move(options[g]));
  }
}

void Optimizer::save(torch::serialize::OutputArchive& archive) const {
  Snapshot state = snapshot();
  state.header["tensors"] = Json::array();
  for (size_t i = 0; i < state.tensors.size(); ++i) {
    state.header["tensors"].push_back(state.tensors[i].first);
    archive.write("tensor_" + std::to_string(i), state.tensors[i].second);
  }
  archive.write("prism", state.header.dump());
}

void Optimizer::load(torch::serialize::InputArchive& archive) {
  c10::IValue text;
  TORCH_CHECK(archive.try_read("prism", text), "load: the archive holds no state of a prism optimizer");
  Snapshot state{Json::parse(text.toStringRef()), {}};
  const Json& names = state.header.at("tensors");
  for (size_t i = 0; i < names.size(); ++i) {
    Tensor tensor;
    archive.read("tensor_" + std::to_string(i), tensor);
    state.tensors.emplace_back(names[i].get<std::string>(), tensor);
  }
  restore(state);
}

void Optimizer::save_safetensors(const std::filesystem::path& path) const {
  const Snapshot state = snapshot();
  std::vector<Tensor> kept;  // contiguous copies on the host, alive until the file is written
  std::vector<io::TensorView> views;
  for (const auto& [name, tensor] : state.tensors) {
    const Tensor& host = kept.emplace_back(tensor.cpu().contiguous());
    const char* type = nullptr;
    for (const auto& known : kTypeNames) {
      if (known.type == host.scalar_type()) type = known.name;
    }
    TORCH_INTERNAL_ASSERT(type != nullptr);
    views.push_back(
        {name, type, host.sizes().vec(), static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()});
  }
  io::write_safetensors(path, views, {{"prism", state.header.dump()}});
}

void Optimizer::load_safetensors(const std::filesystem::path& path) {
  const io::SafetensorsFile file(path);
  const auto header = file.metadata().find("prism");
  TORCH_CHECK(header != file.metadata().end(), "load: ", path.string(), " holds no state of a prism optimizer");
  Snapshot state{Json::parse(header->second), {}};
  for (const auto& view : file.tensors()) {
    const TypeName* type = nullptr;
    for (const auto& known : kTypeNames) {
      if (view.dtype == known.name) type = &known;
    }
    TORCH_CHECK(type != nullptr, "load: ", path.string(), ": '", view.name, "' is ", view.dtype,
                ", which no optimizer state uses");
    Tensor tensor = at::empty(view.shape, type->type);
    std::memcpy(tensor.mutable_data_ptr(), view.data, view.bytes);
    state.tensors.emplace_back(view.name, std::move(tensor));
  }
  restore(state);
}

}  // namespace prism
