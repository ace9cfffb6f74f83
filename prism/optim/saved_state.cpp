#include "prism/optim/saved_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>
#include <torch/serialize/archive.h>

#include <cstring>
#include <map>
#include <set>

#include "prism/io/error.h"
#include "prism/io/safetensors.h"
#include "prism/optim/engine.h"
#include "prism/optim/registry.h"

namespace prism {
namespace {

constexpr int64_t kFormat = 1;

struct TypeName {
  at::ScalarType type;
  const char* name;
};
constexpr TypeName kTypeNames[] = {{at::kFloat, io::kFloat32},
                                   {at::kDouble, io::kFloat64},
                                   {at::kBFloat16, io::kBfloat16},
                                   {at::kHalf, io::kFloat16},
                                   {at::kLong, io::kInt64}};

std::string state_key(const std::string& parameter, const std::string& field) {
  return "state." + parameter + "." + field;
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

// The saved group of each parameter.
std::map<std::string, size_t> groups_by_parameter(const Json& header) {
  std::map<std::string, size_t> groups;
  for (size_t g = 0; g < header.at("groups").size(); ++g) {
    for (const auto& name : header["groups"][g].at("parameters")) groups[name.get<std::string>()] = g;
  }
  return groups;
}

void check_same_names(const std::map<std::string, size_t>& saved, const std::vector<Engine::Group>& ours,
                      const std::string& who) {
  std::set<std::string> missing;
  std::set<std::string> extra;
  for (const auto& [name, group] : saved) extra.insert(name);
  for (const auto& group : ours) {
    for (const auto& name : group.names) {
      if (extra.erase(name) == 0) missing.insert(name);
    }
  }
  TORCH_CHECK_VALUE(missing.empty(), who, ": the saved state has no parameter ", some(missing),
                    extra.empty() ? "" : "; it has " + some(extra) + " instead");
  TORCH_CHECK_VALUE(extra.empty(), who, ": the saved state has ", some(extra), ", which this optimizer does not have");
}

// The one saved group that holds all parameters of a group.
size_t source_of(const Engine::Group& group, const std::map<std::string, size_t>& saved_group, const Json& header,
                 const std::string& who) {
  const auto& first = group.names.front();
  const size_t source = saved_group.at(first);
  for (const auto& name : group.names) {
    TORCH_CHECK_VALUE(saved_group.at(name) == source, who, ": '", first, "' and '", name,
                      "' share a group here, but were saved in two");
  }
  const auto kind = header["groups"][source].at("optimizer").get<std::string>();
  TORCH_CHECK_VALUE(kind == group.options->name(), who, ": '", first, "' was saved by ", kind, ", but is optimized by ",
                    group.options->name(), " here");
  return source;
}

using TensorsByKey = std::map<std::string, Tensor>;

// Copies saved state into the new buckets of a group.
void fill_state(const std::vector<Bucket>& buckets, const Options& options, const Engine::Group& group,
                const TensorsByKey& tensors, const std::string& who) {
  for (const auto& bucket : buckets) {
    // All processes check what one of them takes, so that they fail together.
    for (const auto& field : fields_of_owner(options, bucket)) {
      for (const auto& entry : bucket.entries) {
        const auto& name = group.names[entry.parameter];
        TORCH_CHECK_VALUE(tensors.count(state_key(name, field_name(entry, field.name))) > 0, who,
                          ": the saved state of '", name, "' has no '", field_name(entry, field.name), "'");
      }
    }
    each_field(bucket, [&](const Bucket::Entry& entry, const std::string& field, const Tensor& target) {
      const auto& name = group.names[entry.parameter];
      const auto key = field_name(entry, field);
      const auto found = tensors.find(state_key(name, key));
      TORCH_CHECK_VALUE(found != tensors.end(), who, ": the saved state of '", name, "' has no '", key, "'");
      const Tensor value = part_here(found->second, layout_of(group.layouts, entry.parameter), bucket, target);
      TORCH_CHECK_VALUE(value.sizes() == target.sizes() && at::isFloatingType(value.scalar_type()), who, ": state '",
                        key, "' of '", name, "' must be ", target.scalar_type(), " of shape ", target.sizes(), ", got ",
                        value.scalar_type(), " of shape ", value.sizes());
      target.copy_(value);
    });
  }
}

}  // namespace

Snapshot Engine::snapshot() const {
  at::NoGradGuard no_grad;
  Snapshot result;
  result.header = {{"format", kFormat}, {"groups", Json::array()}};
  for (const auto& group : groups_) {
    const Options& options = *group.options;
    result.header["groups"].push_back(
        {{"optimizer", options.name()}, {"options", options.to_json()}, {"parameters", group.names}});
    for (const auto& bucket : group.buckets) {
      each_field(bucket, [&](const Bucket::Entry& entry, const std::string& field, const Tensor& view) {
        result.tensors.emplace_back(state_key(group.names[entry.parameter], field_name(entry, field)), view.clone());
      });
    }
  }
  if (skipped_.defined()) result.tensors.emplace_back("skipped", skipped_.clone());
  return result;
}

std::vector<Engine::Restored> Engine::restore(const Snapshot& snapshot, const std::string& who) {
  at::NoGradGuard no_grad;
  const Json& header = snapshot.header;
  TORCH_CHECK_VALUE(header.is_object() && header.value("format", int64_t{0}) == kFormat, who,
                    ": expected state of format ", kFormat, ", got ",
                    header.is_object() && header.contains("format") ? header["format"].dump() : "none");
  const auto saved_group = groups_by_parameter(header);
  check_same_names(saved_group, groups_, who);

  // Build everything beside the present state first, so that a mismatch changes nothing.
  std::vector<Restored> restored;
  std::vector<std::vector<Bucket>> buckets;
  const TensorsByKey tensors(snapshot.tensors.begin(), snapshot.tensors.end());
  for (const auto& group : groups_) {
    if (group.names.empty()) {
      const size_t place = restored.size();
      restored.push_back({group.options->copy(), std::min(place, header["groups"].size() - 1)});
      buckets.emplace_back();
      continue;
    }
    const size_t source = source_of(group, saved_group, header, who);
    restored.push_back({make_options(group.options->name(), header["groups"][source].at("options")), source});
    buckets.push_back(make_buckets(*restored.back().options, group.parameters, group.names, group.layouts));
  }
  std::vector<const Options*> options;
  for (const auto& one : restored) options.push_back(one.options.get());
  if (!exchanges().empty()) choose_owners(buckets, options, /*keep=*/true);
  for (size_t g = 0; g < groups_.size(); ++g) fill_state(buckets[g], *options[g], groups_[g], tensors, who);
  const auto skipped = tensors.find("skipped");
  TORCH_CHECK_VALUE(skipped != tensors.end() || !skipped_.defined(), who, ": the saved state has no 'skipped'");

  if (skipped_.defined()) skipped_.copy_(skipped->second);
  has_begun_ = true;
  for (size_t g = 0; g < groups_.size(); ++g) {
    groups_[g].buckets = std::move(buckets[g]);
    groups_[g].known = groups_[g].parameters;
  }
  return restored;
}

void write_archive(const Snapshot& snapshot, torch::serialize::OutputArchive& archive) {
  Json header = snapshot.header;
  header["tensors"] = Json::array();
  for (size_t i = 0; i < snapshot.tensors.size(); ++i) {
    header["tensors"].push_back(snapshot.tensors[i].first);
    archive.write("tensor_" + std::to_string(i), snapshot.tensors[i].second);
  }
  archive.write("prism", header.dump());
}

Snapshot read_archive(torch::serialize::InputArchive& archive) {
  c10::IValue text;
  TORCH_CHECK(archive.try_read("prism", text), "load: the archive holds no state of a prism optimizer");
  Snapshot snapshot{Json::parse(text.toStringRef()), {}};
  const Json& names = snapshot.header.at("tensors");
  for (size_t i = 0; i < names.size(); ++i) {
    Tensor tensor;
    archive.read("tensor_" + std::to_string(i), tensor);
    snapshot.tensors.emplace_back(names[i].get<std::string>(), tensor);
  }
  return snapshot;
}

void write_safetensors(const Snapshot& snapshot, const std::filesystem::path& path) {
  std::vector<Tensor> kept;  // contiguous copies on the host, alive until the file is written
  std::vector<io::TensorView> views;
  for (const auto& [name, tensor] : snapshot.tensors) {
    const Tensor& host = kept.emplace_back(tensor.cpu().contiguous());
    const char* type = nullptr;
    for (const auto& known : kTypeNames) {
      if (known.type == host.scalar_type()) type = known.name;
    }
    TORCH_INTERNAL_ASSERT(type != nullptr);
    views.push_back(
        {name, type, host.sizes().vec(), static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()});
  }
  io::write_safetensors(path, views, {{"prism", snapshot.header.dump()}});
}

Snapshot read_safetensors(const std::filesystem::path& path) {
  const io::SafetensorsFile file(path);
  const auto header = file.metadata().find("prism");
  TORCH_CHECK(header != file.metadata().end(), "load: ", path.string(), " holds no state of a prism optimizer");
  Snapshot snapshot{Json::parse(header->second), {}};
  for (const auto& view : file.tensors()) {
    const TypeName* type = nullptr;
    for (const auto& known : kTypeNames) {
      if (view.dtype == known.name) type = &known;
    }
    TORCH_CHECK(type != nullptr, "load: ", path.string(), ": '", view.name, "' is ", view.dtype,
                ", which no optimizer state uses");
    Tensor tensor = at::empty(view.shape, type->type);
    std::memcpy(tensor.mutable_data_ptr(), view.data, view.bytes);
    snapshot.tensors.emplace_back(view.name, std::move(tensor));
  }
  return snapshot;
}

}  // namespace prism
